"""The best plan in clusters where anybody can see which it is."""

from __future__ import annotations

from tests.oracles.best_plan import BestPlan, best_plan
from tests.oracles.judged_worlds import PLUGINS, world
from tests.oracles.snapshot import Snapshot


def best(s: Snapshot, action: str = "gang-preempt") -> BestPlan | None:
    asker = next(gang.key for gang in s.gangs.values() if gang.full_name == "default/hi")
    return best_plan(s, asker, action)


def victims(s: Snapshot, action: str = "gang-preempt") -> set[str]:
    found = best(s, action)
    assert found is not None
    return {s.pods[uid].name for unit in found.units for uid in unit.pods}


def test_whoever_fits_as_it_is_needs_nobody_to_go() -> None:
    s = world(
        """
nodes: [{name: n1, gpu: 4}]
gangs: [{name: low, requests: {gpu: 2}, runningOn: n1, priority: 1}, {name: hi, pods: 2, min: 2, requests: {gpu: 2}, priority: 2}]
steps: [{scale: {hi: 1}}]
"""
    )
    asker = next(gang for gang in s.gangs.values() if gang.full_name == "default/hi")
    assert [pod.uid for pod in asker.pods() if pod.uid in s.placements] == []
    assert victims(s) == set()


def test_a_surplus_member_goes_before_a_gang_of_lower_priority() -> None:
    s = world(
        """
nodes: [{name: "n[1-3]", gpu: 4}]
gangs:
- {name: low, requests: {gpu: 4}, runningOn: n1, priority: -5}
- {name: wide, pods: 2, min: 1, requests: {gpu: 4}, runningOn: "n[2-3]", priority: 1}
- {name: hi, requests: {gpu: 4}, priority: 2}
"""
    )
    assert victims(s) in ({"wide-0"}, {"wide-1"})


def test_many_of_a_low_priority_go_before_one_of_a_higher() -> None:
    s = world(
        """
nodes: [{name: "n[1-3]", gpu: 4}]
gangs:
- {name: low, pods: 4, requests: {gpu: 2}, runningOn: [n1, n1, n2, n2], priority: 0}
- {name: mid, requests: {gpu: 4}, runningOn: n3, priority: 1}
- {name: hi, requests: {gpu: 4}, priority: 2}
"""
    )
    assert victims(s) == {"low-0", "low-1", "low-2", "low-3"}


def test_of_equals_the_least_work_is_lost() -> None:
    s = world(
        """
nodes: [{name: "n[1-2]", gpu: 4}]
gangs:
- {name: old, requests: {gpu: 4}, runningOn: n1, priority: 0, age: 9h}
- {name: young, requests: {gpu: 4}, runningOn: n2, priority: 0, age: 1h}
- {name: hi, requests: {gpu: 4}, priority: 2}
"""
    )
    assert victims(s) == {"young-0"}


def test_only_what_is_contested_costs() -> None:
    s = world(
        """
nodes: [{name: "n[1-2]", gpu: 4, cpu: 16}]
gangs:
- {name: few, requests: {gpu: 4, cpu: 12}, runningOn: n1, priority: 0, age: 1h}
- {name: many, pods: 2, requests: {gpu: 3, cpu: 1}, runningOn: [n2, n1], priority: 1, age: 1h}
- {name: hi, requests: {gpu: 3, cpu: 1}, priority: 2}
""".replace("gpu: 4, cpu: 12", "gpu: 1, cpu: 12")
    )
    # One GPU of `few` is not enough; the gang with the GPUs goes although it has more of them.
    assert victims(s) == {"many-0", "many-1"}


def test_no_plan_is_no_plan() -> None:
    s = world(
        """
nodes: [{name: n1, gpu: 4}]
gangs:
- {name: low, requests: {gpu: 4}, runningOn: n1, priority: 1, annotations: {volcano.sh/preemptable: "false"}}
- {name: hi, requests: {gpu: 4}, priority: 2}
"""
    )
    assert best(s) is None


SEVERAL = """
nodes: [{{name: "n[1-3]", gpu: 4}}]
queues: [{{name: a, deserved: {{gpu: 4}}}}, {{name: b, deserved: {{gpu: 1}}{b}}}, {{name: c, deserved: {{gpu: 3}}}}, {{name: d}}]
gangs:
- {{name: bs, queue: b, requests: {{gpu: 4}}, runningOn: n1, age: 2h}}
- {{name: cs, queue: c, requests: {{gpu: 4}}, runningOn: n2, age: 2h}}
- {{name: ds, queue: {third}, requests: {{gpu: 4}}, runningOn: n3, age: 9h}}
- {{name: hi, queue: a, requests: {{gpu: 4}}}}
"""


def test_the_queues_give_in_their_order() -> None:
    assert victims(world(SEVERAL.format(b="", third="d")), "gang-reclaim") == {"ds-0"}
    assert victims(world(SEVERAL.format(b="", third="c")), "gang-reclaim") == {"bs-0"}
    # A queue of higher priority gives after one of lower, however far it is over its share.
    assert victims(world(SEVERAL.format(b=", priority: 5", third="c")), "gang-reclaim") in ({"cs-0"}, {"ds-0"})


def test_a_gang_that_must_lie_in_one_rack_is_served_in_the_cheapest() -> None:
    s = world(
        """
nodes:
- {name: "a[1-2]", gpu: 4, labels: {rack: a}}
- {name: "b[1-2]", gpu: 4, labels: {rack: b}}
gangs:
- {name: as, pods: 2, requests: {gpu: 4}, runningOn: "a[1-2]", priority: 1}
- {name: bs, pods: 2, requests: {gpu: 4}, runningOn: "b[1-2]", priority: 0}
- {name: hi, pods: 2, requests: {gpu: 4}, priority: 2, networkTopology: {mode: hard, highestTierAllowed: 1}}
""",
        plugins=f"{PLUGINS}, topology: {{tiers: {{rack: rack}}}}",
    )
    found = best(s)
    assert found is not None
    assert victims(s) == {"bs-0", "bs-1"}
    assert set(found.placed.values()) == {"b1", "b2"}


def test_a_count_of_free_memory_is_not_a_free_device() -> None:
    s = world(
        """
nodes: [{name: n1, cpu: 8, devices: [{count: 2, memory: 8Gi}]}]
gangs:
- {name: one, requests: {volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 5120}, runningOn: n1, priority: 0, age: 3h}
- {name: two, requests: {volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 4096}, runningOn: n1, priority: 0, age: 2h}
- {name: hi, requests: {volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 6144}, priority: 2}
"""
    )
    assert victims(s) == {"two-0"}
