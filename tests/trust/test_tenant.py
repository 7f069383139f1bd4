"""Whoever may write anything in her own namespace, and only there, gains nothing in others'.

All that is decided about them is, byte for byte, what is decided without her.
"""

from __future__ import annotations

from functools import cache

import pytest
from tests.trust.tenant import FORGERIES
from tests.trust.tenant_run import OTHERS, AboutOthers, played

from muster.kube.read.object_references import Manifest


@cache
def without_her(others: str) -> AboutOthers:
    return played(others=others)


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery["name"])
def test_what_is_decided_about_others_is_what_is_decided_without_her(forgery: Manifest, others: str) -> None:
    expected, found = without_her(others), played(forgery, others=others)
    for cycle, wanted in zip(found.decided, expected.decided, strict=True):
        assert cycle == wanted
    assert found.objects == expected.objects


def test_much_is_decided_about_others_in_that_time() -> None:
    text = "\n".join(line for others in OTHERS for line in without_her(others).decided)
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
        "moved for",
        "nodes are kept for",
        "gang='team-a/serve'",
    )
    assert [kind for kind in kinds if kind not in text] == []
    assert "pod='mallory/hers-0'" in text
