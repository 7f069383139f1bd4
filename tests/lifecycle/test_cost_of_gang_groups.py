"""What a namespace can cost the others by what it lists: work is counted in lines of the package that run, not in time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from muster.kube.read.decoder import Decoder
from muster.kube.read.flavours import MAX_GANG_GROUP
from muster.model.events import Event, Upsert
from muster.model.pod import Pod
from muster.state.store import Store

GANG = "gang.scheduling.koordinator.sh"
HOSTILE = 300


def lines_run(work: Callable[[], object]) -> int:
    count = 0

    def on_line(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "line"
        return on_line

    def on_call(frame: FrameType, _: str, __: Any) -> Any:
        return on_line if "muster" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def pod(name: str, *, listed: list[str] | None, label: int = 0, version: int = 1) -> Event:
    annotations = {f"{GANG}/name": name, f"{GANG}/min-available": "1"}
    if listed is not None:
        annotations[f"{GANG}/groups"] = "[" + ",".join(f'"{one}"' for one in listed) + "]"
    found = Decoder().decode(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "namespace": "a",
                "resourceVersion": str(version),
                "labels": {"label": str(label)},
                "annotations": annotations,
            },
            "spec": {"schedulerName": "muster", "containers": [{"resources": {"requests": {"cpu": "1"}}}]},
        }
    )
    assert isinstance(found, Pod)
    return Upsert(found)


def cost_of_a_label(listed: list[str] | None) -> int:
    """With many gangs that list these, the lines that run when one label of one of them changes."""
    store = Store()
    for number in range(HOSTILE):
        store.fold(pod(f"g-{number}", listed=listed))
    store.world(1.0)
    patched = pod("g-7", listed=listed, label=1, version=2)

    def patch() -> None:
        store.fold(patched)
        store.world(2.0)

    return lines_run(patch)


@pytest.mark.parametrize(
    "listed",
    [
        pytest.param([f"b/none-{number}" for number in range(MAX_GANG_GROUP)], id="gangs that do not exist"),
        pytest.param([f"a/g-{HOSTILE // 2 + number}" for number in range(MAX_GANG_GROUP)], id="gangs that do not list it"),
        pytest.param([f"b/none-{number}" for number in range(3900)], id="more than a group may have"),
    ],
)
def test_a_label_costs_what_one_gang_costs_however_many_others_list_the_same(listed: list[str]) -> None:
    alone = cost_of_a_label(None)
    assert cost_of_a_label(listed) < alone + 10 * MAX_GANG_GROUP


def test_a_list_that_is_too_long_is_told_and_its_text_is_not_kept() -> None:
    event = pod("g", listed=[f"b/none-{number}" for number in range(3900)])
    assert isinstance(event, Upsert)
    found = event.obj
    assert isinstance(found, Pod)
    assert any(f"a gang group has at most {MAX_GANG_GROUP}" in problem.text for problem in found.problems)
    assert max(map(len, found.annotations.values())) < 100
