"""Which domain a gang gets: the same as by trying every one, always together, whatever the order in which facts arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.topology.rack_cluster import binds
from tests.topology.rack_worlds import Case, Job, cases, cluster_of, submit, violating_gangs, with_more_members

from muster.engine import domain_placement as domains_module
from muster.engine.fit_counts import CapacityView, CurrentCapacity, DomainBounds, domain_bounds, fit_counts
from muster.engine.hooks import Ask, Purpose
from muster.engine.place import place
from muster.engine.session import Session
from muster.model.effects import Verdict
from muster.model.pod import Phase
from muster.model.topology_spec import TopologyConstraint
from muster.plugins._domain_search import ConstrainedDomains
from muster.plugins._tier_constraint import TierConstraint
from muster.plugins.topology import Topology
from muster.state.derived.topology_domains import Domain
from muster.state.gangs.gang_stage import reaches_min
from muster.state.node_table import IntColumn

MANY = settings(max_examples=150, deadline=None)


@dataclass(frozen=True)
class TriesEveryDomain:
    """The same constraints and scores, but nothing is known ahead: every domain that is allowed is tried."""

    inner: Topology = field(default_factory=Topology)
    weight: float = 1.0
    name: str = "tries all"

    def domains(self, s: Session, ask: Ask) -> Sequence[Domain] | Verdict | None:
        constraint = self.inner._constraint(s, ask)
        return ConstrainedDomains(s, ask, constraint).allowed if isinstance(constraint, TierConstraint) else constraint

    def fill_order(self, s: Session, ask: Ask, domain: Domain) -> Sequence[Domain]:
        return self.inner.fill_order(s, ask, domain)

    def score_domain(self, s: Session, ask: Ask, domain: Domain) -> float:
        return self.inner.score_domain(s, ask, domain)


def no_bounds(_s: Session, ask: Ask, domains: Sequence[Domain], _figures: object) -> DomainBounds:
    plenty: IntColumn = np.full(len(domains), len(ask.pods), dtype=np.int64)
    return DomainBounds(plenty, np.ones(len(domains), dtype=np.bool_))


def assert_same_as_trying_all(case: Case) -> None:
    fast = binds(cluster_of(case).cycle())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(domains_module, "domain_bounds", no_bounds)
        slow = binds(cluster_of(case, TriesEveryDomain()).cycle())
    assert fast == slow


@MANY
@given(case=cases())
def test_the_best_domain_is_the_one_that_trying_all_of_them_finds(case: Case) -> None:
    assert_same_as_trying_all(case)


def assert_scores_are_known_ahead(case: Case) -> None:
    """What a domain's score will be with everybody in it, to the last bit."""
    cluster = cluster_of(case)
    s = cluster.session()
    for gang in cluster.world.facts.gangs.values():
        ask = Ask(gang, gang.pods(), Purpose.ALLOCATE)
        where = s.where(ask).domains
        ahead = s.score_domains(ask, where)
        assert ahead is not None
        for domain, expected in zip(where, ahead.tolist(), strict=True):
            with s.trial("try", cause="Test") as trial:
                if place(s, trial, ask.pods, domain=domain, phase=Phase.BINDING).first_refused is None:
                    assert s.score_domain(ask, domain) == expected


@MANY
@given(case=cases(subgroups=False))
def test_a_predicted_score_is_the_score_afterwards(case: Case) -> None:
    assert_scores_are_known_ahead(case)


def assert_bounds_bound(case: Case) -> None:
    cluster = cluster_of(case)
    s = cluster.session()
    for gang in cluster.world.facts.gangs.values():
        ask = Ask(gang, gang.pods(), Purpose.ALLOCATE, needed=gang.min)
        tree = Topology()._tree(s)
        found = (*tree.domains, tree.whole)
        limits = domain_bounds(s, ask, found, CurrentCapacity(s, CapacityView.NOW))
        for at, domain in enumerate(found):
            with s.trial("try", cause="Test") as trial:
                placed = place(s, trial, ask.pods, domain=domain, phase=Phase.BINDING).count
                assert placed <= limits.most[at]
                assert limits.feasible[at] or not reaches_min(s.world, gang)
                if len({pod.signature for pod in ask.pods}) == 1:
                    assert placed == min(limits.most[at], len(ask.pods))


@MANY
@given(case=cases(subgroups=False))
def test_never_more_members_fit_than_the_bounds_say(case: Case) -> None:
    assert_bounds_bound(case)


def assert_fit_counts_keep_up(case: Case) -> None:
    """After every move the slots are what they would be if worked out anew."""
    cluster = cluster_of(case)
    s = cluster.session()
    pods = [pod for gang in cluster.world.facts.gangs.values() for pod in gang.pods()]
    for view in CapacityView:
        fit_counts(s, pods[0], view)
    with s.trial("try", cause="Test") as trial:
        for pod in pods:
            place(s, trial, [pod], domain=Topology()._tree(s).whole, phase=Phase.RESERVED)
            for view in CapacityView:
                kept = fit_counts(s, pods[0], view).tolist()
                cluster.world.derived.clear()
                assert kept == fit_counts(s, pods[0], view).tolist()


@settings(max_examples=40, deadline=None)
@given(case=cases(subgroups=False))
def test_fit_counts_are_kept_up_to_date(case: Case) -> None:
    assert_fit_counts_keep_up(case)


def assert_hard_constraints_hold(case: Case, changes: Sequence[int]) -> None:
    """Whatever comes, grows or goes: no hard constraint is ever broken by what a cycle places."""
    cluster = cluster_of(case)
    sizes = dict(enumerate(case.jobs))
    cluster.cycle()
    assert violating_gangs(cluster.world) == []
    for step, change in enumerate(changes):
        number = change % len(case.jobs)
        if change % 3 == 0:
            sizes[number] = with_more_members(sizes[number], 2)
            submit(cluster, f"g{number}", sizes[number])
        elif change % 3 == 1:
            placed = sorted(uid for uid in cluster.world.placements.by_uid if uid.startswith(f"g{number}-"))
            for uid in placed[: 1 + change % 2]:
                cluster.delete_object("Pod", uid)
        else:
            submit(cluster, f"late{step}", case.jobs[number])
        cluster.cycle()
        assert violating_gangs(cluster.world) == []


@MANY
@given(case=cases(), changes=st.lists(st.integers(0, 30), max_size=4))
def test_hard_constraints_always_hold(case: Case, changes: list[int]) -> None:
    assert_hard_constraints_hold(case, changes)


@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_the_order_in_which_nodes_and_hypernodes_arrive_changes_nothing(case: Case) -> None:
    assert cluster_of(case).cycle() == cluster_of(case, backwards=True).cycle()


@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_a_gang_with_a_soft_constraint_places_as_many_pods_as_one_without(case: Case) -> None:
    """A constraint that may be broken never costs a member its node: compared for the first gang, on the same cluster."""
    job = case.jobs[0]
    plain = Job(job.roles, job.least, None, None, job.priority)
    soft = Job(
        job.roles[:1], job.roles[0][0], job.constraint if job.constraint is not None and not job.constraint.hard else None, None, 0
    )
    alone = Case(case.blocks, case.loose, case.taken, (soft,))
    without = Case(case.blocks, case.loose, case.taken, (Job(soft.roles, soft.least, None, None, plain.priority),))
    assert len(binds(cluster_of(alone).cycle())) == len(binds(cluster_of(without).cycle()))


def test_an_attempt_that_fails_in_every_domain_leaves_no_trace() -> None:
    """Sums say that each rack has room for both roles; that it has not is found out by trying."""
    rack = TopologyConstraint(hard=True, highest_tier=1)
    cluster = cluster_of(Case(((2, 2),), 0, (), (Job(((1, 7), (3, 3)), 4, rack, None, 0),)))
    table = cluster.world.table
    before = (table.used.tobytes(), table.planned.tobytes(), cluster.world.placements.unplaced_members.copy())
    outcome = cluster.cycle()
    assert binds(outcome) == {}
    assert dict(outcome.stats)["domains tried"] > 0
    assert (table.used.tobytes(), table.planned.tobytes(), cluster.world.placements.unplaced_members) == before
    assert cluster.world.placements.by_uid == {}
    assert "(best of 2 domains)" in cluster.why("g0")
