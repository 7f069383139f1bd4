"""Whoever may write anything in her own namespace, and only there, gains nothing in others'.

All that is decided about them is, byte for byte, what is decided without her.
"""

from __future__ import annotations

from functools import cache

import pytest
from tests.trust.tenant import FORGERIES
from tests.trust.tenant_run import AboutOthers, played

from muster.kube.read.object_references import Manifest


@cache
def without_her() -> AboutOthers:
    return played()


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery["name"])
def test_what_is_decided_about_others_is_what_is_decided_without_her(forgery: Manifest) -> None:
    expected, found = without_her(), played(forgery)
    for cycle, wanted in zip(found.decided, expected.decided, strict=True):
        assert cycle == wanted
    assert found.objects == expected.objects


def test_much_is_decided_about_others_in_that_time() -> None:
    text = "\n".join(without_her().decided)
    kinds = (
        "Bind(",
        "Nominate(",
        "Evict(",
        "Reserve(",
        "SavePlan(",
        "DeletePlan(",
        "SaveHistory(",
        "CancelEviction(",
        "method='soft'",
    )
    assert [kind for kind in kinds if kind not in text] == []
    assert "pod='mallory/hers-0'" in text
