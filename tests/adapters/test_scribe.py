"""From effects to writes: what comes first, who waits for whom, and what is said of which object."""

from collections.abc import Sequence
from typing import Any

import pytest

from muster.adapters.kube.refs import Ref, Stored, pod_ref
from muster.adapters.kube.scribe import Saying, outlook, sayings, staged, topic, volume_refusal, word_patch
from muster.model.effects import Bind, Condition, Evict, GroupStatus, Hold, Nominate, QueueStatus, Release, Spare
from muster.model.volumes import VolumeChoice

MEMBERS = {"default/g": ["default/a", "default/b"], "default/h": ["default/c"]}


def gathered(slot: str) -> Sequence[Ref]:
    return [pod_ref(name) for name in MEMBERS.get(slot.partition(":")[2] or slot, [])]


def nominate(uid: str, *, plan: str, victims: tuple[str, ...], gang: str = "default/g") -> Nominate:
    return Nominate(uid, f"default/{uid}", "n", gang, "w", "preempt", 0.0, plan, 2, victims)


def evict(uid: str, *, for_gang: str = "default/g") -> Evict:
    return Evict(uid, f"default/{uid}", "n", "default/v", for_gang, "w", "preempt")


BIND = Bind("a", "default/a", "n", "default/a", "w")
HOLD = Hold("b", "default/b", "n", "default/b", "w", "c")
RELEASE = Release("c", "default/c", "n", "default/c", "w", "c")
SPARE = Spare("d", "default/d", "n", "default/d", "w", "c")
STATUS = GroupStatus("volcano:default/g", "Running")


class Objects:
    def __init__(self, **pods: dict[str, Any]) -> None:
        self.known: dict[Ref, Stored] = {Ref("", "Node", "", "n"): {"metadata": {"uid": "n"}}}
        for name, more in pods.items():
            pod = {"metadata": {"uid": name, **more.get("metadata", {})}, "spec": more.get("spec", {}), "status": {}}
            self.known[pod_ref(f"default/{name}")] = pod

    def peek(self, ref: Ref) -> Stored | None:
        return self.known.get(ref)


def test_a_round_is_who_may_stay_then_releases_then_deeds_then_evictions_then_words() -> None:
    plan = nominate("x", plan="p", victims=("v",))
    ordered = staged([STATUS, BIND, evict("v"), HOLD, RELEASE, plan, SPARE], gathered=gathered)
    assert ordered.spares == (SPARE,)
    assert ordered.releases == (RELEASE,)
    assert ordered.deeds == (BIND, HOLD, plan)
    assert [one.effect for one in ordered.evictions] == [evict("v")]
    assert ordered.words == (Saying(Ref("scheduling.volcano.sh", "PodGroup", "default", "g"), STATUS),)


def test_an_eviction_waits_for_all_claims_of_the_plans_that_name_its_victim() -> None:
    claims = [
        nominate("x", plan="p", victims=("v", "w")),
        nominate("y", plan="p", victims=("v", "w")),
        nominate("z", plan="q", victims=("w",), gang="default/h"),
    ]
    ordered = staged([evict("v"), evict("w"), *claims], gathered=gathered)
    assert [one.after for one in ordered.evictions] == [("x", "y"), ("x", "y", "z")]


def test_an_eviction_that_no_claim_names_waits_for_those_of_its_gang_if_there_are_any() -> None:
    claims = [nominate("x", plan="p", victims=())]
    ordered = staged([evict("v"), evict("w", for_gang="default/h"), *claims], gathered=gathered)
    assert [one.after for one in ordered.evictions] == [("x",), ()]


@pytest.mark.parametrize(
    ("pod", "bound", "says"),
    [
        ({}, False, ""),
        ({"spec": {"nodeName": "n"}}, True, ""),
        ({"spec": {"nodeName": "m"}}, True, "is bound to m already"),
        ({"metadata": {"uid": "other"}}, False, "is gone"),
        ({"metadata": {"deletionTimestamp": "now"}}, False, "is being deleted"),
        ({"spec": {"schedulingGates": [{"name": "g"}]}}, False, "has scheduling gates"),
    ],
)
def test_what_can_be_said_of_a_bind_beforehand(pod: dict[str, Any], bound: bool, says: str) -> None:
    seen = outlook(BIND, Objects(a=pod))
    assert (seen.bound, bool(seen.why)) == (bound, bool(says))
    assert says in seen.why


def test_nobody_is_bound_to_a_node_that_is_gone() -> None:
    objects = Objects(a={})
    objects.known.pop(Ref("", "Node", "", "n"))
    assert "node n is gone" in outlook(BIND, objects).why


def test_a_volume_that_went_to_another_claim_is_refused() -> None:
    objects, choice = Objects(), VolumeChoice("default/c", "pv")
    assert "claim default/c is gone" in volume_refusal(choice, objects)
    objects.known[Ref("", "PersistentVolumeClaim", "default", "c")] = {"spec": {}}
    assert "volume pv is gone" in volume_refusal(choice, objects)
    objects.known[Ref("", "PersistentVolume", "", "pv")] = {"spec": {"claimRef": {"namespace": "default", "name": "d"}}}
    assert "went to claim default/d" in volume_refusal(choice, objects)
    objects.known[Ref("", "PersistentVolume", "", "pv")] = {"spec": {"claimRef": {"namespace": "default", "name": "c"}}}
    assert volume_refusal(choice, objects) == ""


def names(word: Condition | GroupStatus | QueueStatus) -> list[str]:
    return [f"{one.ref.kind}.{one.ref.group} {one.ref.title}" for one in sayings(word, gathered=gathered)]


def test_who_is_told_what() -> None:
    refusal = Condition("gang", "koordinator:default/g+koordinator:default/h", ok=False, code="NoRoom", why="w")
    group = "PodGroup.scheduling.sigs.k8s.io default"
    assert names(refusal) == [f"{group}/g", "Pod. default/a", "Pod. default/b", f"{group}/h", "Pod. default/c"]
    all_well = Condition("gang", "koordinator:default/g", ok=True, code="Scheduled", why="w")
    assert names(all_well) == [f"{group}/g"]
    assert names(Condition("node", "n", ok=False, code="Invalid", why="w")) == ["Node. n"]
    assert len(names(QueueStatus("quota/default/q", ()))) == 2
    with pytest.raises(ValueError, match="nothing to say about a moon"):
        names(Condition("moon", "m", ok=False, code="x", why="w"))


def test_of_one_topic_the_newer_word_replaces_the_older() -> None:
    ref = pod_ref("default/a")
    fate = Saying(ref, Condition("gang", "default/g", ok=False, code="NoRoom", why="w"))
    fields = Saying(ref, Condition("gang", "default/g", ok=False, code="Invalid", why="w"))
    assert [topic(fate), topic(fields), topic(Saying(ref, STATUS))] == ["fate", "validity", "status"]


def test_only_who_waits_is_told_that_it_waits() -> None:
    saying = Saying(pod_ref("default/a"), Condition("pod", "default/a", ok=False, code="NoRoom", why="w"))
    waiting: Stored = {"metadata": {}, "spec": {}, "status": {}}
    assert word_patch(saying, waiting, now=0.0) is not None
    assert word_patch(saying, {**waiting, "spec": {"nodeName": "n"}}, now=0.0) is None
    assert word_patch(saying, {**waiting, "spec": {"schedulingGates": [{}]}}, now=0.0) is None


@pytest.mark.parametrize("status", ["fine", {"conditions": "fine"}, {"conditions": ["fine", 7, None]}, None])
def test_nonsense_in_a_status_is_written_over(status: Any) -> None:
    ref = Ref("scheduling.volcano.sh", "PodGroup", "default", "g")
    refused = Saying(ref, Condition("gang", "volcano:default/g", ok=False, code="NoRoom", why="w"))
    patch = word_patch(refused, {"metadata": {}, "spec": {}, "status": status}, now=0.0)
    assert patch is not None
    assert [one["type"] for one in patch["status"]["conditions"]] == ["Unschedulable"]
    figures = Saying(Ref("scheduling.volcano.sh", "Queue", "", "q"), QueueStatus("queue/q", (("allocated.cpu", "1"),)))
    assert word_patch(figures, {"status": status}, now=0.0) == {"status": {"allocated": {"cpu": "1"}}}
