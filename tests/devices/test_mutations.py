"""The twins notice: each of these bugs makes one of the checks fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase as Step
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.devices import test_twins, test_undo
from tests.devices.device_worlds import cases, device_lists, pod_asks

from muster.model.device import Device
from muster.model.pod import Placement, Pod
from muster.state import device_slot_choice
from muster.state.derived import device_usage
from muster.state.derived.device_usage import DeviceUsage
from muster.state.derived.placement_counters import NOMINATED, TERMINATING
from muster.state.trial import Trial

Patch = pytest.MonkeyPatch

# Finding one example is enough; making it small is not needed here.
FIND_ONE = settings(max_examples=2000, deadline=None, phases=[Step.generate], database=None, derandomize=True)


def only_memory_is_checked(patch: Patch) -> None:
    def takes(_device: Device, memory: int, _cores: int, memory_left: int, _cores_left: int, _holders: int) -> bool:
        return memory <= memory_left

    patch.setattr(device_slot_choice, "takes", takes)


def device_groups_do_not_matter(patch: Patch) -> None:
    patch.setattr(device_slot_choice, "_fewest_groups", lambda groups, _count: iter([tuple(groups)]))


def only_the_first_choice_is_tried(patch: Patch) -> None:
    slot_choices = device_slot_choice._ways
    patch.setattr(
        device_slot_choice, "_ways", lambda *args: iter([way for _, way in zip(range(1), slot_choices(*args), strict=False)])
    )


def terminating_pods_have_no_slots(patch: Patch) -> None:
    patch.setattr(device_usage, "TERMINATING", NOMINATED)
    patch.setattr(device_usage, "NOMINATED", TERMINATING)


def all_pods_of_a_node_get_the_same_slots(patch: Patch) -> None:
    at = device_slot_choice.Run.at
    patch.setattr(device_slot_choice.Run, "at", lambda self, _number: at(self, 0))


def restored_pods_get_other_slots(patch: Patch) -> None:
    restore = Trial.restore

    def elsewhere(self: Trial, pod: Pod, placement: Placement) -> None:
        restore(self, pod, Placement(placement.phase, placement.node, placement.since))

    patch.setattr(Trial, "restore", elsewhere)


def removed_pods_are_not_subtracted(patch: Patch) -> None:
    count = DeviceUsage.count

    def one_way(self: DeviceUsage, entry: Any, *, by: int) -> None:
        if by > 0:
            count(self, entry, by=by)

    patch.setattr(DeviceUsage, "count", one_way)


def again(test: Any, *strategies: st.SearchStrategy[Any]) -> Callable[[], None]:
    """The check of a test, looked for failures only."""
    found: Callable[[], None] = FIND_ONE(given(*strategies)(test.hypothesis.inner_test))
    return found


best = again(
    test_twins.test_the_slots_are_the_best_of_all_that_serve, device_lists, test_twins.used_slots, pod_asks(), st.booleans()
)
fits = again(test_twins.test_a_pod_fits_exactly_where_slots_can_be_chosen, cases())
bulk = again(test_twins.test_members_in_bulk_get_the_nodes_and_slots_that_they_would_get_one_by_one, cases())
undone = again(test_undo.test_after_any_rolled_back_simulation_every_slot_is_as_before, cases(), st.randoms(use_true_random=False))

BUGS: dict[str, tuple[Callable[[Patch], None], Callable[[], None]]] = {
    "memory is all that counts": (only_memory_is_checked, best),
    "device groups do not matter": (device_groups_do_not_matter, best),
    "the first way is the only one": (only_the_first_choice_is_tried, best),
    "leavers have nothing": (terminating_pods_have_no_slots, fits),
    "all pods of a node get the same slots": (all_pods_of_a_node_get_the_same_slots, bulk),
    "whoever comes back gets other slots": (restored_pods_get_other_slots, undone),
    "what goes is not counted out": (removed_pods_are_not_subtracted, undone),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_twin_notices_when(bug: str, monkeypatch: Patch) -> None:
    breaks, check = BUGS[bug]
    breaks(monkeypatch)
    with pytest.raises(AssertionError):
        check()
