"""Limits: enforced on every queue but the root, where they are asked for and configured, with a sentence that says so."""

from __future__ import annotations

import pytest
from tests.queues.queue_cluster import FixtureCluster, queue, res

from muster.engine.hooks import Ask, Purpose
from muster.engine.quota import UNLIMITED, QueueBounds, QueueUsage, fit_count, fits, limits
from muster.model.gang import PodGroup
from muster.model.pod import ApiFlavour, Declared, Membership, Phase
from muster.model.resource_amounts import GPU, Resources
from muster.model.topics import Topic


def gpus(cluster: FixtureCluster, key: str) -> int:
    return int(cluster.world.ledger.used(key)[cluster.world.columns.position[GPU]])


def test_a_full_queue_refuses_with_numbers_and_names_what_can_change_it() -> None:
    cluster = FixtureCluster().nodes(32).upsert(queue("company"), queue("research", parent="company", limit=res(gpu=224)))
    cluster.gang("old", 208, queue="research").cycle().gang("new", 48, queue="research").cycle()
    verdict = cluster.verdict("new")
    assert verdict.code == "QueueLimit"
    assert verdict.why == "queue research: gpu 208 used + 48 requested > 224 limit"
    assert verdict.topics == (Topic.QUEUE_CAPACITY.of("queue/research"), Topic.QUEUE_CAPACITY.of("queue/company"))
    assert verdict.curable


def test_a_gang_that_is_larger_than_the_limit_is_not_cured_by_eviction() -> None:
    cluster = FixtureCluster().nodes(2).upsert(queue("a", limit=res(gpu=4))).gang("g", 8, queue="a").cycle()
    assert not cluster.verdict("g").curable


def test_a_limit_holds_at_every_ancestor_and_the_sentence_names_the_one_that_is_full() -> None:
    cluster = (
        FixtureCluster()
        .nodes(2)
        .upsert(queue("p", limit=res(gpu=6)), queue("a", parent="p", limit=res(gpu=8)), queue("b", parent="p"))
    )
    cluster.gang("first", 4, queue="b").cycle().gang("second", 4, queue="a").cycle()
    assert cluster.verdict("second").why == "queue p: gpu 4 used + 4 requested > 6 limit"


def test_the_roots_limit_only_informs() -> None:
    cluster = (
        FixtureCluster().nodes().upsert(queue("root", limit=res(gpu=1)), queue("a", parent="root")).gang("g", 4, queue="a").cycle()
    )
    assert cluster.runs("g") == 4


def test_a_cpu_gang_is_never_refused_because_gpus_are_over_the_limit() -> None:
    cluster = FixtureCluster().nodes().upsert(queue("a", limit=res(gpu=4, cpu=8))).gang("old", 4, res(gpu=1), queue="a").cycle()
    cluster.upsert(queue("a", limit=res(gpu=2, cpu=8))).gang("cpu", 4, res(cpu=1), queue="a").cycle()
    assert cluster.runs("cpu") == 4
    assert gpus(cluster, "queue/a") == 4


def test_a_queue_without_gpus_configured_does_not_count_them() -> None:
    cluster = FixtureCluster().nodes().upsert(queue("a", limit=res(cpu=8))).gang("g", 4, res(cpu=1, gpu=2), queue="a").cycle()
    assert cluster.runs("g") == 4


def test_an_explicit_zero_forbids() -> None:
    cluster = (
        FixtureCluster()
        .nodes()
        .upsert(queue("a", limit=res(gpu=0)))
        .gang("gpu", queue="a")
        .gang("cpu", 1, res(cpu=1), queue="a")
        .cycle()
    )
    assert cluster.verdict("gpu").why == "queue a: gpu 0 used + 1 requested > 0 limit"
    assert cluster.runs("cpu") == 1


def test_an_elastic_gang_gets_its_minimum_first_and_then_as_many_as_the_limit_allows() -> None:
    cluster = FixtureCluster().nodes(2).upsert(queue("a", limit=res(gpu=6))).gang("g", 8, queue="a", least=4).cycle()
    assert cluster.runs("g") == 6
    verdict = cluster.verdict("g")
    assert (verdict.code, verdict.why) == ("QueueLimit", "queue a: gpu 6 used + 2 requested > 6 limit")
    cluster.upsert(queue("a", limit=res(gpu=7))).cycle()
    assert cluster.runs("g") == 7


def test_an_elastic_gang_whose_minimum_does_not_fit_gets_nothing() -> None:
    cluster = FixtureCluster().nodes(2).upsert(queue("a", limit=res(gpu=3))).gang("g", 8, queue="a", least=4).cycle()
    assert cluster.runs("g") == 0
    assert cluster.verdict("g").why == "queue a: gpu 0 used + 4 requested > 3 limit"


def test_the_minimum_of_a_later_gang_goes_before_the_surplus_of_an_earlier_one() -> None:
    cluster = FixtureCluster().nodes(2).upsert(queue("a", limit=res(gpu=6)))
    cluster.gang("first", 5, queue="a", least=2).gang("second", 2, queue="a").cycle()
    assert (cluster.runs("first"), cluster.runs("second")) == (4, 2)
    assert "queue a: gpu 6 used + 1 requested > 6 limit" in cluster.verdict("first").why


def test_lowering_a_limit_evicts_nobody_and_raising_it_admits_the_next() -> None:
    cluster = FixtureCluster().nodes().upsert(queue("a", limit=res(gpu=4))).gang("old", 4, queue="a").cycle()
    cluster.upsert(queue("a", limit=res(gpu=1))).gang("new", 2, queue="a").cycle(3)
    assert (cluster.runs("old"), cluster.runs("new")) == (4, 0)
    cluster.upsert(queue("a", limit=res(gpu=6))).cycle()
    assert cluster.runs("new") == 2


def test_a_gang_waits_while_pods_of_its_queue_are_terminating() -> None:
    cluster = FixtureCluster().nodes(2).upsert(queue("a", limit=res(gpu=4))).gang("old", 4, queue="a").cycle()
    for i in range(4):
        cluster.change(f"default/old-{i}", deleted_at=cluster.now + 30)
    cluster.gang("new", 4, queue="a").cycle()
    assert cluster.runs("new") == 0
    cluster.delete(*(f"default/old-{i}" for i in range(4))).cycle()
    assert cluster.runs("new") == 4


def test_refused_gangs_are_tried_again_when_a_pod_of_the_queue_is_deleted_and_not_before() -> None:
    cluster = FixtureCluster().nodes(2).upsert(queue("a", limit=res(gpu=2)), queue("b"))
    cluster.gang("old", 2, queue="a").cycle().gang("new", 1, queue="a").gang("other", queue="b").cycle()
    cluster.cycle(3)
    attempts = {gang.full_name: cluster.world.memory.attempts[key].count for key, gang in cluster.world.facts.gangs.items()}
    assert attempts["default/new"] == 1
    cluster.delete("default/other-0").cycle()
    assert cluster.world.memory.attempts["volcano:default/new"].count == 1
    cluster.delete("default/old-0").cycle()
    assert cluster.runs("new") == 1


def test_each_role_of_a_gang_group_is_judged_in_its_own_queue_and_nothing_binds_until_all_fit() -> None:
    cluster = (
        FixtureCluster()
        .nodes(4)
        .upsert(queue("p", limit=res(gpu=5)), queue("a", parent="p"), queue("b", parent="p", limit=res(gpu=2)))
    )
    members = ("default/x", "default/y")
    for name, where, count in (("x", "a", 3), ("y", "b", 3)):
        declared = Declared(groups=members)
        cluster.gang(name, count, queue=where, flavour=ApiFlavour.KOORDINATOR)
        cluster.upsert(
            PodGroup(ApiFlavour.KOORDINATOR, "default", name, min_member=count, queue=f"queue/{where}", declared=declared)
        )
        for i in range(count):
            cluster.change(f"default/{name}-{i}", membership=Membership(ApiFlavour.KOORDINATOR, name, declared=declared))
    cluster.cycle()
    (gang,) = cluster.world.facts.gangs.values()
    verdict = cluster.world.memory.attempts[gang.key].verdict
    assert verdict is not None
    assert verdict.why == "queue p: gpu 0 used + 6 requested > 5 limit"
    cluster.upsert(queue("p", limit=res(gpu=6))).cycle()
    verdict = cluster.world.memory.attempts[gang.key].verdict
    assert verdict is not None
    assert verdict.why == "queue b: gpu 0 used + 3 requested > 2 limit"
    assert cluster.runs("x") == 0
    cluster.upsert(queue("b", parent="p", limit=res(gpu=3))).cycle()
    assert (cluster.runs("x"), cluster.runs("y")) == (3, 3)


@pytest.mark.parametrize(
    ("purpose", "left"), [(Purpose.ALLOCATE, False), (Purpose.NOMINATE, True), (Purpose.EVICT, True)], ids=lambda p: str(p)
)
def test_a_bind_checks_what_the_queue_uses_and_a_nomination_what_it_will_use(purpose: Purpose, left: bool) -> None:
    cluster = FixtureCluster().nodes(2).upsert(queue("a", limit=res(gpu=4))).gang("old", 4, queue="a").cycle()
    for i in range(4):
        cluster.change(f"default/old-{i}", deleted_at=cluster.now + 30)
    cluster.gang("new", 4, queue="a")
    s = cluster.session()
    gang = s.world.facts.gangs["volcano:default/new"]
    verdict = s.admit(Ask(gang, gang.pods(), purpose))
    assert verdict.ok is left
    if not verdict.ok:
        assert verdict.why == "queue a: gpu 4 used + 4 requested > 4 limit (gpu 4 of it is being released)"
    assert s.quota_fit(gang.pods()[0], count=4, phase=Phase.NOMINATED).fit_count == 4
    assert s.quota_fit(gang.pods()[0], count=4, phase=Phase.BINDING).fit_count == 0


def test_capacity_nominated_to_others_is_not_free() -> None:
    cluster = FixtureCluster().nodes(2).upsert(queue("a", limit=res(gpu=4))).gang("one", 3, queue="a").gang("two", 2, queue="a")
    s = cluster.session()
    one, two = s.world.facts.gangs["volcano:default/one"], s.world.facts.gangs["volcano:default/two"]
    with s.trial("", cause="") as trial:
        for pod in one.pods():
            trial.place(pod, "n1", phase=Phase.NOMINATED)
        assert s.quota_fit(two.pods()[0], count=2, phase=Phase.BINDING).fit_count == 1
        refused = s.admit(Ask(two, two.pods(), Purpose.ALLOCATE))
    assert refused.why == "queue a: gpu 3 used + 2 requested > 4 limit"


def test_a_nominated_pod_does_not_block_itself() -> None:
    cluster = FixtureCluster().nodes(2).upsert(queue("a", limit=res(gpu=3))).gang("one", 3, queue="a")
    s = cluster.session()
    pods = s.world.facts.gangs["volcano:default/one"].pods()
    with s.trial("", cause="") as trial:
        for pod in pods:
            trial.place(pod, "n1", phase=Phase.NOMINATED)
        for pod in pods:
            assert s.quota_fit(pod, count=1, phase=Phase.BINDING).fit_count == 1
            trial.change_phase(pod, phase=Phase.BINDING)
        assert s.world.ledger.used("queue/a")[s.world.columns.position[GPU]] == 3


def test_a_gang_is_nominated_to_the_capacity_of_its_queue_as_soon_as_a_pod_is_terminating() -> None:
    cluster = (
        FixtureCluster()
        .nodes(2)
        .upsert(queue("a", limit=res(gpu=4)))
        .gang("old", 4, queue="a")
        .cycle()
        .gang("new", 4, queue="a")
        .cycle()
    )
    assert cluster.verdict("new").code == "QueueLimit"
    for i in range(4):
        cluster.change(f"default/old-{i}", deleted_at=cluster.now + 30)
    cluster.cycle()
    assert cluster.verdict("new").code == "Preempting"


def test_a_gang_is_tried_again_when_others_change_to_another_queue() -> None:
    cluster = (
        FixtureCluster()
        .nodes()
        .upsert(queue("default", limit=res(gpu=1)))
        .pod("first", namespace="team")
        .cycle()
        .pod("second")
        .cycle()
    )
    assert cluster.verdict("second").code == "QueueLimit"
    cluster.upsert(queue("team/team")).cycle()
    assert cluster.bound == ["second"]


def test_free_capacity_counts_whole_pods_and_the_message_is_for_the_rest() -> None:
    cluster = FixtureCluster().nodes().upsert(queue("a", limit=res(gpu=7))).gang("g", 4, res(gpu=2), queue="a")
    s = cluster.session()
    gang = s.world.facts.gangs["volcano:default/g"]
    quota_fit = s.quota_fit(gang.pods()[0], count=4, phase=Phase.BINDING)
    assert quota_fit.fit_count == 3
    assert quota_fit.verdict.why == "queue a: gpu 6 used + 2 requested > 7 limit"


def test_comparing_and_counting_agree() -> None:
    """`fits` for one after the other gives as many as `fit_count` in one go."""
    cluster = (
        FixtureCluster()
        .nodes()
        .upsert(queue("p", limit=res(gpu=9)), queue("a", parent="p", limit=res(gpu=7, cpu=5)))
        .gang("g", queue="a")
    )
    s = cluster.session()
    rows = s.world.ledger.rows_up("queue/a")
    bound = QueueBounds(s.world.ledger.planned_in(rows) * 0 + UNLIMITED)
    limited = limits(cluster.world)
    need = s.world.columns.vector(res(gpu=2, cpu=1))
    start = s.world.columns.vector(res(gpu=1, cpu=0))
    standing = QueueUsage((("used", start + rows[:, None] * 0),))
    count = 0
    while fits(s, limited, rows, QueueUsage((("used", standing.total + count * need),)), need[None, :]).ok:
        count += 1
    assert fit_count(s, limited, rows, standing, need, count=10).fit_count == count == 3
    assert (
        fit_count(s, QueueBounds(bound.rows[:1].repeat(len(s.world.ledger), axis=0)), rows, standing, need, count=10).fit_count
        == 10
    )


def test_limits_are_read_again_when_a_new_resource_appears() -> None:
    cluster = FixtureCluster().nodes().upsert(queue("a", limit=res(gpu=1))).gang("one", queue="a").cycle()
    cluster.upsert(queue("a", limit=Resources.of({GPU: 1, "example.com/fpga": 0}))).gang("two", queue="a").cycle()
    assert cluster.verdict("two").code == "QueueLimit"


def test_pods_of_a_deleted_job_count_in_its_queue_until_they_are_deleted() -> None:
    cluster = FixtureCluster().nodes().upsert(queue("a", limit=res(gpu=2))).gang("old", 2, queue="a").cycle()
    cluster.delete_object("PodGroup", "volcano:default/old")
    for i in range(2):
        cluster.change(f"default/old-{i}", deleted_at=cluster.now + 30)
    cluster.gang("new", queue="a").cycle()
    assert gpus(cluster, "queue/a") == 2
    assert cluster.verdict("new").code in ("QueueLimit", "Preempting")
    cluster.delete("default/old-0", "default/old-1").cycle()
    assert cluster.runs("new") == 1
