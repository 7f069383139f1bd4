"""ElasticQuotas: whole jobs within minimum and maximum, what non-preemptible jobs keep, and runtimes that follow the demand."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.queues.over_share import over_share
from tests.queues.queue_cluster import FixtureCluster, queue, res

from muster.engine.hooks import Ask, Purpose
from muster.model.pod import ApiFlavour, Phase
from muster.model.queue import PREEMPTIBLE_LABEL, Queue
from muster.model.resource_amounts import CPU, GPU, Resources
from muster.plugins._runtime_quota import runtime_quotas
from muster.plugins.elastic_quota import ElasticQuotas

NON_PREEMPTIBLE = {PREEMPTIBLE_LABEL: "false"}
PREEMPTIBLE = {PREEMPTIBLE_LABEL: "true"}


def quota(name: str, *, least: int, most: int, parent: str = "", **fields: object) -> Queue:
    return queue(f"t/{name}", deserved=res(gpu=least), limit=res(gpu=most), parent=parent, **fields)


def job(
    cluster: FixtureCluster, name: str, pods: int, *, where: str = "q", labels: dict[str, str] | None = None, at: str = ""
) -> FixtureCluster:
    return cluster.gang(name, pods, queue=f"quota/?/{where}", labels=labels, at=at, flavour=ApiFlavour.KOORDINATOR)


def cluster_with(*quotas: Queue, nodes: int = 4, **options: bool) -> FixtureCluster:
    return FixtureCluster([replace(ElasticQuotas(), **options)]).nodes(nodes).upsert(*quotas)  # type: ignore[arg-type]


# -- admission of whole jobs -------------------------------------------------------------------------------------------------------


def test_a_non_preemptible_job_stays_within_the_minimum() -> None:
    cluster = cluster_with(quota("q", least=4, most=16))
    job(cluster, "fits", 4, labels=NON_PREEMPTIBLE).cycle()
    job(cluster, "over", 1, labels=NON_PREEMPTIBLE).cycle()
    assert (cluster.runs("fits"), cluster.runs("over")) == (4, 0)
    verdict = cluster.verdict("over")
    assert verdict.code == "QuotaMin"
    assert verdict.why == "quota t/q: gpu 4 used by non-preemptible pods + 1 requested > 4 min"


def test_a_preemptible_job_may_borrow_up_to_the_maximum() -> None:
    cluster = cluster_with(quota("q", least=4, most=8))
    job(cluster, "borrows", 8, labels=PREEMPTIBLE).cycle()
    job(cluster, "over", 1).cycle()
    assert (cluster.runs("borrows"), cluster.runs("over")) == (8, 0)
    assert cluster.verdict("over").why == "quota t/q: gpu 8 used + 1 requested > 8 limit"


def test_a_preemptible_job_leaves_capacity_for_the_non_preemptible_ones_that_wait() -> None:
    cluster = cluster_with(quota("q", least=4, most=8), nodes=1)
    cluster.pod("in the way".replace(" ", "-"), res(gpu=6), at="n1")
    job(cluster, "own", 3, labels=NON_PREEMPTIBLE).cycle()
    assert cluster.verdict("own").code == "InsufficientCapacity"
    job(cluster, "loose", 6, labels=PREEMPTIBLE).cycle()
    assert cluster.verdict("loose").why == "quota t/q: gpu 0 used + 3 reserved for non-preemptible jobs + 6 requested > 8 max"


def test_what_is_kept_is_no_more_than_the_minimum() -> None:
    cluster = cluster_with(quota("q", least=2, most=8))
    job(cluster, "toolarge", 5, labels=NON_PREEMPTIBLE)
    job(cluster, "loose", 6, labels=PREEMPTIBLE).cycle()
    assert (cluster.runs("toolarge"), cluster.runs("loose")) == (0, 6)


def test_a_non_preemptible_job_must_fit_below_the_maximum_as_well() -> None:
    cluster = cluster_with(quota("q", least=4, most=6))
    job(cluster, "loose", 4, labels=PREEMPTIBLE).cycle()
    job(cluster, "own", 3, labels=NON_PREEMPTIBLE).cycle()
    verdict = cluster.verdict("own")
    assert (verdict.code, verdict.why, verdict.curable) == ("QueueLimit", "quota t/q: gpu 4 used + 3 requested > 6 limit", True)


def test_a_minimum_in_which_a_resource_is_not_configured_does_not_bound_it() -> None:
    cluster = FixtureCluster([ElasticQuotas()]).nodes(2).upsert(queue("t/q", deserved=res(cpu=4), limit=res(gpu=8)))
    job(cluster, "own", 6, labels=NON_PREEMPTIBLE).cycle()
    assert cluster.runs("own") == 6


def test_a_minimum_of_zero_leaves_nothing_to_non_preemptible_jobs_and_lets_others_borrow() -> None:
    cluster = FixtureCluster([ElasticQuotas()]).nodes(2).upsert(queue("t/q", deserved=res(cpu=4, gpu=0), limit=res(gpu=8)))
    job(cluster, "own", 1, labels=NON_PREEMPTIBLE).cycle()
    job(cluster, "loose", 6, labels=PREEMPTIBLE).cycle()
    assert (cluster.runs("own"), cluster.runs("loose")) == (0, 6)
    assert cluster.verdict("own").why == "quota t/q: gpu 0 used by non-preemptible pods + 1 requested > 0 min"


def test_a_job_whose_pods_disagree_is_refused_and_the_pods_are_named() -> None:
    cluster = cluster_with(quota("q", least=4, most=8))
    job(cluster, "mixed", 3, labels=NON_PREEMPTIBLE).change("default/mixed-1", labels=PREEMPTIBLE).cycle()
    verdict = cluster.verdict("mixed")
    assert verdict.code == "MixedPreemptible"
    assert "1 of its 3 pods is preemptible and the others are not (mixed-1 is, mixed-0 is not)" in verdict.why
    cluster.change("default/mixed-1", labels=NON_PREEMPTIBLE).cycle()
    assert cluster.runs("mixed") == 3


def test_unlabelled_pods_are_preemptible_unless_the_policy_says_otherwise() -> None:
    for option in ({}, {"disable_default_preemptiable": True}, {"disable_default_preemptible": True}):
        cluster = cluster_with(quota("q", least=2, most=8), **option)
        job(cluster, "plain", 4).cycle()
        assert cluster.runs("plain") == (0 if option else 4)


def test_the_quota_counts_members_that_are_not_yet_in_it_and_only_those() -> None:
    cluster = cluster_with(quota("q", least=4, most=8))
    cluster.gang("g", 4, queue="quota/?/q", least=4, labels=NON_PREEMPTIBLE, flavour=ApiFlavour.KOORDINATOR, at="n1")
    cluster.gang("g", 6, queue="quota/?/q", least=4, labels=NON_PREEMPTIBLE, flavour=ApiFlavour.KOORDINATOR)
    for i in range(4):
        cluster.change(f"default/g-{i}", node="n1")
    cluster.cycle()
    assert cluster.runs("g") == 4
    assert cluster.verdict("g").why == "quota t/q: gpu 4 used by non-preemptible pods + 2 requested > 4 min"


def test_volcanos_queues_are_none_of_its_business() -> None:
    cluster = (
        FixtureCluster([ElasticQuotas()])
        .nodes(2)
        .upsert(queue("a", deserved=res(gpu=1)))
        .gang("g", 8, queue="a", labels=NON_PREEMPTIBLE)
        .cycle()
    )
    assert cluster.runs("g") == 8


# -- whom eviction could help ------------------------------------------------------------------------------------------------------


def evict_verdict(cluster: FixtureCluster, name: str) -> tuple[bool, str]:
    s = cluster.session()
    gang = s.world.facts.gangs[f"koordinator:default/{name}"]
    verdict = s.admit(Ask(gang, gang.pods(), Purpose.EVICT, action="job-preempt"))
    return verdict.ok, verdict.code


def test_a_non_preemptible_job_may_ask_for_evictions_while_it_is_within_the_minimum() -> None:
    cluster = cluster_with(quota("q", least=4, most=6))
    job(cluster, "loose", 6, labels=PREEMPTIBLE).cycle()
    job(cluster, "own", 4, labels=NON_PREEMPTIBLE)
    job(cluster, "greedy", 5, labels=NON_PREEMPTIBLE)
    assert evict_verdict(cluster, "own") == (True, "")
    assert evict_verdict(cluster, "greedy") == (False, "QuotaMin")


def test_a_preemptible_job_may_ask_for_evictions_only_while_it_is_within_the_maximum() -> None:
    cluster = cluster_with(quota("q", least=4, most=6))
    job(cluster, "loose", 4, labels=PREEMPTIBLE).cycle()
    job(cluster, "two", 2)
    job(cluster, "three", 3)
    assert evict_verdict(cluster, "two") == (True, "")
    assert evict_verdict(cluster, "three")[0] is False


# -- order -------------------------------------------------------------------------------------------------------------------------


def test_the_quota_with_the_smallest_part_of_its_minimum_goes_first_unless_priority_alone_shall_decide() -> None:
    for ordered, first in ((True, "b"), (False, "a")):
        cluster = cluster_with(quota("qa", least=4, most=16), quota("qb", least=4, most=16), nodes=1, enable_queue_order=ordered)
        job(cluster, "old", 2, where="qa", at="n1")
        cluster.gang("a", 6, queue="quota/?/qa", priority=9, flavour=ApiFlavour.KOORDINATOR)
        cluster.gang("b", 6, queue="quota/?/qb", flavour=ApiFlavour.KOORDINATOR).cycle()
        assert cluster.bound[0] == f"{first}-0"


def test_a_quota_deserves_its_minimum() -> None:
    cluster = cluster_with(quota("q", least=4, most=16))
    job(cluster, "g", 6).cycle()
    s = cluster.session()
    assert s.deserved("quota/t/q") == Resources.of({GPU: 4})
    assert over_share(s, "quota/t/q") == Resources.of({GPU: 2})


# -- runtimes ----------------------------------------------------------------------------------------------------------------------


def runtime(cluster: FixtureCluster, *names: str, scale: bool = True) -> list[int]:
    s = cluster.session()
    column = s.world.columns.position[GPU]
    rows = runtime_quotas(s, scale=scale).runtime
    return [int(rows[s.world.ledger.row[f"quota/t/{name}"], column]) for name in names]


def test_runtimes_share_what_is_idle_by_weight_and_bound_jobs() -> None:
    cluster = cluster_with(quota("a", least=2, most=12), quota("b", least=2, most=12), nodes=2, enable_runtime_quota=True)
    job(cluster, "one", 12, where="a").cycle()
    assert runtime(cluster, "a", "b") == [12, 0]
    assert cluster.runs("one") == 12
    job(cluster, "two", 12, where="b")
    assert runtime(cluster, "a", "b") == [8, 8]
    cluster.cycle()
    verdict = cluster.verdict("two")
    assert (verdict.code, verdict.why) == ("QueueLimit", "quota t/b: gpu 0 used + 12 requested > 8 runtime")
    assert cluster.runs("one") == 12, "a runtime that shrinks evicts nobody"


def test_a_runtime_that_grows_admits_the_next_job() -> None:
    cluster = cluster_with(quota("a", least=0, most=8), quota("b", least=0, most=8), nodes=1, enable_runtime_quota=True)
    job(cluster, "waits", 16, where="b")
    job(cluster, "six", 6, where="a").cycle()
    assert cluster.verdict("six").why == "quota t/a: gpu 0 used + 6 requested > 4 runtime"
    cluster.delete(*(f"default/waits-{i}" for i in range(16))).cycle()
    assert cluster.runs("six") == 6


def test_the_weight_is_the_maximum_unless_another_is_given() -> None:
    cluster = cluster_with(quota("a", least=0, most=12), quota("b", least=0, most=4), nodes=1)
    job(cluster, "one", 12, where="a")
    job(cluster, "two", 4, where="b")
    assert runtime(cluster, "a", "b") == [6, 2]
    cluster.upsert(quota("a", least=0, most=12, weights=res(gpu=1)), quota("b", least=0, most=4, weights=res(gpu=1)))
    assert runtime(cluster, "a", "b") == [4, 4]


def test_a_quota_that_does_not_lend_keeps_its_minimum() -> None:
    cluster = cluster_with(quota("a", least=6, most=8, lends=False), quota("b", least=0, most=8), nodes=1)
    job(cluster, "one", 8, where="b")
    assert runtime(cluster, "a", "b") == [6, 2]


def test_minimums_that_do_not_fit_are_scaled_together_or_not_at_all() -> None:
    cluster = cluster_with(quota("p", least=30, most=40), *(quota(name, least=10, most=40, parent="p") for name in "abc"), nodes=1)
    cluster.nodes(1, gpu=20)
    for name in "abc":
        job(cluster, f"j{name}", 20, where=name)
    assert runtime(cluster, "p", "a", "b", "c") == [20, 7, 7, 6]
    assert runtime(cluster, "p", "a", "b", "c", scale=False) == [30, 10, 10, 10]
    cluster.nodes(1, gpu=80)
    assert runtime(cluster, "p", "a", "b", "c") == [40, 14, 13, 13]


def test_children_share_their_parents_runtime_and_ask_for_no_more_than_their_maximums() -> None:
    below = quota("p1", least=0, most=2, parent="p"), quota("p2", least=0, most=8, parent="p")
    cluster = cluster_with(quota("p", least=0, most=8), quota("q", least=0, most=8), *below, nodes=1)
    job(cluster, "one", 8, where="p1")
    job(cluster, "two", 1, where="p2")
    job(cluster, "three", 8, where="q")
    assert runtime(cluster, "p", "q", "p1", "p2") == [3, 5, 2, 1]


def test_what_pods_outside_the_quotas_use_is_not_shared() -> None:
    cluster = cluster_with(quota("a", least=0, most=8), nodes=1)
    cluster.pod("outside", res(gpu=3), at="n1").upsert(queue("koordinator-system/koordinator-system-quota"))
    cluster.pod("system", res(gpu=1), at="n1", queue="quota/?/koordinator-system-quota")
    job(cluster, "one", 8, where="a")
    assert runtime(cluster, "a") == [4]


def test_ancestors_runtimes_count_only_where_the_policy_says_so_but_their_maximums_always_do() -> None:
    quotas = (quota("p", least=0, most=6), quota("c", least=0, most=12, parent="p"), quota("other", least=0, most=8))
    cluster = cluster_with(*quotas, nodes=4)
    job(cluster, "big", 8, where="c").cycle()
    assert cluster.verdict("big").why == "quota t/p: gpu 0 used + 8 requested > 6 limit"
    for checks, expected in ((False, 4), (True, 3)):
        own = quota("p", least=0, most=6), quota("c", least=4, most=12, parent="p"), quota("other", least=5, most=8)
        cluster = cluster_with(
            *own, nodes=1, enable_runtime_quota=True, enable_min_quota_scale=False, enable_check_parent_quota=checks
        )
        job(cluster, "o", 5, where="other")
        cluster.gang("c", 4, queue="quota/?/c", least=1, flavour=ApiFlavour.KOORDINATOR)
        s = cluster.session()
        pod = s.world.facts.pods["default/c-0"]
        assert s.quota_fit(pod, count=4, phase=Phase.NOMINATED).fit_count == expected


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_runtimes_of_siblings_never_add_up_to_more_than_their_parent_has(data: st.DataObject) -> None:
    numbers = st.integers(0, 12)
    cluster = FixtureCluster([ElasticQuotas(enable_runtime_quota=True)]).nodes(1, gpu=data.draw(numbers))
    names = [""]
    for i in range(data.draw(st.integers(1, 5))):
        least = data.draw(numbers)
        parent, most = data.draw(st.sampled_from(names)), data.draw(st.integers(least, 12))
        cluster.upsert(quota(f"q{i}", least=least, most=most, parent=parent, lends=data.draw(st.booleans())))
        names.append(f"q{i}")
    for i, name in enumerate(names[1:]):
        if asked := data.draw(numbers):
            cluster.gang(f"g{i}", asked, queue=f"quota/?/{name}", flavour=ApiFlavour.KOORDINATOR)
    s = cluster.session()
    column = s.world.columns.position[GPU]
    rows = runtime_quotas(s, scale=True).runtime[:, column].tolist()
    for parent, children in s.world.facts.tree.children.items():
        quotas = [child for child in children if child.startswith("quota/")]
        total = int(s.world.table.allocatable[:, column].sum()) if not parent else rows[s.world.ledger.row[parent]]
        assert sum(rows[s.world.ledger.row[child]] for child in quotas) <= total


def test_a_quota_of_cpus_says_nothing_about_gpus() -> None:
    cluster = FixtureCluster([ElasticQuotas(enable_runtime_quota=True)]).nodes(1, cpu=8, gpu=8)
    cluster.upsert(queue("t/q", limit=res(cpu=4), deserved=res(cpu=2)))
    job(cluster, "g", 8).cycle()
    assert cluster.runs("g") == 8
    s = cluster.session()
    assert s.deserved("quota/t/q") == Resources.of({CPU: 2000})
