"""Limits: enforced on every queue but the root, where they are asked for and configured, with a sentence that says so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.queues.town import Town, queue, res

from muster.engine.hooks import Ask, Purpose
from muster.engine.quota import UNLIMITED, Bounds, Standing, fits, fits_easily, limits, seats
from muster.model.gang import Group
from muster.model.pod import Declared, Dialect, Membership, Phase
from muster.model.resources import GPU, Resources
from muster.model.topics import Topic


def gpus(town: Town, key: str) -> int:
    return int(town.world.ledger.used(key)[town.world.columns.position[GPU]])


def test_a_full_queue_refuses_with_numbers_and_names_what_can_change_it() -> None:
    town = Town().nodes(32).see(queue("company"), queue("research", parent="company", limit=res(gpu=224)))
    town.gang("old", 208, queue="research").cycle().gang("new", 48, queue="research").cycle()
    verdict = town.verdict("new")
    assert verdict.code == "QueueLimit"
    assert verdict.why == "queue research: gpu 208 used + 48 asked > 224 limit"
    assert verdict.topics == (Topic.QUEUE_CAPACITY.of("queue/research"), Topic.QUEUE_CAPACITY.of("queue/company"))
    assert verdict.curable


def test_a_gang_that_is_larger_than_the_limit_cannot_be_helped_by_eviction() -> None:
    town = Town().nodes(2).see(queue("a", limit=res(gpu=4))).gang("g", 8, queue="a").cycle()
    assert not town.verdict("g").curable


def test_a_limit_holds_at_every_ancestor_and_the_sentence_names_the_one_that_is_full() -> None:
    town = Town().nodes(2).see(queue("p", limit=res(gpu=6)), queue("a", parent="p", limit=res(gpu=8)), queue("b", parent="p"))
    town.gang("first", 4, queue="b").cycle().gang("second", 4, queue="a").cycle()
    assert town.verdict("second").why == "queue p: gpu 4 used + 4 asked > 6 limit"


def test_the_roots_limit_only_informs() -> None:
    town = Town().nodes().see(queue("root", limit=res(gpu=1)), queue("a", parent="root")).gang("g", 4, queue="a").cycle()
    assert town.runs("g") == 4


def test_a_cpu_gang_is_never_refused_because_gpus_are_over_the_limit() -> None:
    town = Town().nodes().see(queue("a", limit=res(gpu=4, cpu=8))).gang("old", 4, res(gpu=1), queue="a").cycle()
    town.see(queue("a", limit=res(gpu=2, cpu=8))).gang("cpu", 4, res(cpu=1), queue="a").cycle()
    assert town.runs("cpu") == 4
    assert gpus(town, "queue/a") == 4


def test_a_queue_without_gpus_configured_does_not_count_them() -> None:
    town = Town().nodes().see(queue("a", limit=res(cpu=8))).gang("g", 4, res(cpu=1, gpu=2), queue="a").cycle()
    assert town.runs("g") == 4


def test_an_explicit_zero_forbids() -> None:
    town = Town().nodes().see(queue("a", limit=res(gpu=0))).gang("gpu", queue="a").gang("cpu", 1, res(cpu=1), queue="a").cycle()
    assert town.verdict("gpu").why == "queue a: gpu 0 used + 1 asked > 0 limit"
    assert town.runs("cpu") == 1


def test_an_elastic_gang_gets_its_minimum_first_and_then_as_many_as_the_limit_allows() -> None:
    town = Town().nodes(2).see(queue("a", limit=res(gpu=6))).gang("g", 8, queue="a", least=4).cycle()
    assert town.runs("g") == 6
    verdict = town.verdict("g")
    assert (verdict.code, verdict.why) == ("QueueLimit", "queue a: gpu 6 used + 2 asked > 6 limit")
    town.see(queue("a", limit=res(gpu=7))).cycle()
    assert town.runs("g") == 7


def test_an_elastic_gang_whose_minimum_does_not_fit_gets_nothing() -> None:
    town = Town().nodes(2).see(queue("a", limit=res(gpu=3))).gang("g", 8, queue="a", least=4).cycle()
    assert town.runs("g") == 0
    assert town.verdict("g").why == "queue a: gpu 0 used + 4 asked > 3 limit"


def test_the_minimum_of_a_later_gang_goes_before_nothing_but_its_own_surplus() -> None:
    town = Town().nodes(2).see(queue("a", limit=res(gpu=6)))
    town.gang("first", 5, queue="a", least=2).gang("second", 2, queue="a").cycle()
    assert (town.runs("first"), town.runs("second")) == (5, 0)
    assert town.verdict("second").why == "queue a: gpu 5 used + 2 asked > 6 limit"


def test_lowering_a_limit_evicts_nobody_and_raising_it_lets_the_next_in() -> None:
    town = Town().nodes().see(queue("a", limit=res(gpu=4))).gang("old", 4, queue="a").cycle()
    town.see(queue("a", limit=res(gpu=1))).gang("new", 2, queue="a").cycle(3)
    assert (town.runs("old"), town.runs("new")) == (4, 0)
    town.see(queue("a", limit=res(gpu=6))).cycle()
    assert town.runs("new") == 2


def test_a_gang_waits_while_those_who_leave_its_queue_are_still_there() -> None:
    town = Town().nodes(2).see(queue("a", limit=res(gpu=4))).gang("old", 4, queue="a").cycle()
    for i in range(4):
        town.change(f"default/old-{i}", deleted_at=town.now + 30)
    town.gang("new", 4, queue="a").cycle()
    assert town.runs("new") == 0
    town.delete(*(f"default/old-{i}" for i in range(4))).cycle()
    assert town.runs("new") == 4


def test_refused_gangs_are_tried_again_when_somebody_leaves_the_queue_and_not_before() -> None:
    town = Town().nodes(2).see(queue("a", limit=res(gpu=2)), queue("b"))
    town.gang("old", 2, queue="a").cycle().gang("new", 1, queue="a").gang("other", queue="b").cycle()
    town.cycle(3)
    attempts = {gang.title: town.world.memory.attempts[key].count for key, gang in town.world.facts.gangs.items()}
    assert attempts["default/new"] == 1
    town.delete("default/other-0").cycle()
    assert town.world.memory.attempts["volcano:default/new"].count == 1
    town.delete("default/old-0").cycle()
    assert town.runs("new") == 1


def test_each_role_of_a_gang_group_is_judged_in_its_own_queue_and_nothing_binds_until_all_fit() -> None:
    town = Town().nodes(4).see(queue("p", limit=res(gpu=5)), queue("a", parent="p"), queue("b", parent="p", limit=res(gpu=2)))
    members = ("default/x", "default/y")
    for name, where, count in (("x", "a", 3), ("y", "b", 3)):
        declared = Declared(groups=members)
        town.gang(name, count, queue=where, dialect=Dialect.KOORDINATOR)
        town.see(Group(Dialect.KOORDINATOR, "default", name, min_member=count, queue=f"queue/{where}", declared=declared))
        for i in range(count):
            town.change(f"default/{name}-{i}", membership=Membership(Dialect.KOORDINATOR, name, declared=declared))
    town.cycle()
    (gang,) = town.world.facts.gangs.values()
    verdict = town.world.memory.attempts[gang.key].verdict
    assert verdict is not None
    assert verdict.why == "queue p: gpu 0 used + 6 asked > 5 limit"
    town.see(queue("p", limit=res(gpu=6))).cycle()
    verdict = town.world.memory.attempts[gang.key].verdict
    assert verdict is not None
    assert verdict.why == "queue b: gpu 0 used + 3 asked > 2 limit"
    assert town.runs("x") == 0
    town.see(queue("b", parent="p", limit=res(gpu=3))).cycle()
    assert (town.runs("x"), town.runs("y")) == (3, 3)


@pytest.mark.parametrize(
    ("purpose", "left"), [(Purpose.ALLOCATE, False), (Purpose.NOMINATE, True), (Purpose.EVICT, True)], ids=lambda p: str(p)
)
def test_a_bind_looks_at_what_stands_in_the_queue_and_a_nomination_at_what_will(purpose: Purpose, left: bool) -> None:
    town = Town().nodes(2).see(queue("a", limit=res(gpu=4))).gang("old", 4, queue="a").cycle()
    for i in range(4):
        town.change(f"default/old-{i}", deleted_at=town.now + 30)
    town.gang("new", 4, queue="a")
    s = town.session()
    gang = s.world.facts.gangs["volcano:default/new"]
    verdict = s.admit(Ask(gang, gang.pods(), purpose))
    assert verdict.ok is left
    if not verdict.ok:
        assert verdict.why == "queue a: gpu 4 used + 4 asked > 4 limit (gpu 4 of it is leaving)"
    assert s.room(gang.pods()[0], count=4, phase=Phase.NOMINATED).seats == 4
    assert s.room(gang.pods()[0], count=4, phase=Phase.BINDING).seats == 0


def test_what_was_promised_to_others_is_no_room() -> None:
    town = Town().nodes(2).see(queue("a", limit=res(gpu=4))).gang("one", 3, queue="a").gang("two", 2, queue="a")
    s = town.session()
    one, two = s.world.facts.gangs["volcano:default/one"], s.world.facts.gangs["volcano:default/two"]
    with s.trial("", cause="") as trial:
        for pod in one.pods():
            trial.place(pod, "n1", phase=Phase.NOMINATED)
        assert s.room(two.pods()[0], count=2, phase=Phase.BINDING).seats == 1
        refused = s.admit(Ask(two, two.pods(), Purpose.ALLOCATE))
    assert refused.why == "queue a: gpu 3 used + 2 asked > 4 limit"


def test_whoever_was_promised_a_seat_is_not_in_its_own_way() -> None:
    town = Town().nodes(2).see(queue("a", limit=res(gpu=3))).gang("one", 3, queue="a")
    s = town.session()
    pods = s.world.facts.gangs["volcano:default/one"].pods()
    with s.trial("", cause="") as trial:
        for pod in pods:
            trial.place(pod, "n1", phase=Phase.NOMINATED)
        for pod in pods:
            assert s.room(pod, count=1, phase=Phase.BINDING).seats == 1
            trial.turn(pod, phase=Phase.BINDING)
        assert s.world.ledger.used("queue/a")[s.world.columns.position[GPU]] == 3


def test_a_gang_is_promised_the_room_in_its_queue_as_soon_as_somebody_is_told_to_go() -> None:
    town = Town().nodes(2).see(queue("a", limit=res(gpu=4))).gang("old", 4, queue="a").cycle().gang("new", 4, queue="a").cycle()
    assert town.verdict("new").code == "QueueLimit"
    for i in range(4):
        town.change(f"default/old-{i}", deleted_at=town.now + 30)
    town.cycle()
    assert town.verdict("new").code == "Clearing"


def test_a_gang_is_tried_again_when_others_move_out_of_its_queue() -> None:
    town = Town().nodes().see(queue("default", limit=res(gpu=1))).pod("first", namespace="team").cycle().pod("second").cycle()
    assert town.verdict("second").code == "QueueLimit"
    town.see(queue("team/team")).cycle()
    assert town.bound == ["second"]


def test_room_counts_whole_pods_and_the_sentence_is_for_those_who_are_left_over() -> None:
    town = Town().nodes().see(queue("a", limit=res(gpu=7))).gang("g", 4, res(gpu=2), queue="a")
    s = town.session()
    gang = s.world.facts.gangs["volcano:default/g"]
    room = s.room(gang.pods()[0], count=4, phase=Phase.BINDING)
    assert room.seats == 3
    assert room.verdict.why == "queue a: gpu 6 used + 2 asked > 7 limit"


def test_comparing_and_counting_agree() -> None:
    """`fits` for one after the other gives as many as `seats` in one go."""
    town = Town().nodes().see(queue("p", limit=res(gpu=9)), queue("a", parent="p", limit=res(gpu=7, cpu=5))).gang("g", queue="a")
    s = town.session()
    rows = s.world.ledger.rows_up("queue/a")
    bound = Bounds(s.world.ledger.taken_in(rows) * 0 + UNLIMITED)
    limited = limits(town.world)
    need = s.world.columns.vector(res(gpu=2, cpu=1))
    start = s.world.columns.vector(res(gpu=1, cpu=0))
    standing = Standing((("used", start + rows[:, None] * 0),))
    count = 0
    while fits(s, limited, rows, Standing((("used", standing.total + count * need),)), need[None, :]).ok:
        count += 1
    assert seats(s, limited, rows, standing, need, count=10).seats == count == 3
    assert seats(s, Bounds(bound.rows[:1].repeat(len(s.world.ledger), axis=0)), rows, standing, need, count=10).seats == 10


def test_limits_are_read_again_when_a_new_resource_appears() -> None:
    town = Town().nodes().see(queue("a", limit=res(gpu=1))).gang("one", queue="a").cycle()
    town.see(queue("a", limit=Resources.of({GPU: 1, "example.com/fpga": 0}))).gang("two", queue="a").cycle()
    assert town.verdict("two").code == "QueueLimit"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_quick_look_agrees_with_the_thorough_one(data: st.DataObject) -> None:
    numbers = st.integers(0, 8)
    town = Town().nodes(2)
    names = [""]
    for i in range(data.draw(st.integers(1, 4))):
        limit = data.draw(
            st.sampled_from([res(), res(gpu=data.draw(numbers)), res(gpu=data.draw(numbers), cpu=data.draw(numbers))])
        )
        town.see(queue(f"q{i}", parent=data.draw(st.sampled_from(names)), limit=limit))
        names.append(f"q{i}")
    for i in range(data.draw(st.integers(0, 4))):
        each = res(gpu=data.draw(numbers), cpu=data.draw(numbers))
        town.gang(f"g{i}", data.draw(st.integers(1, 3)), each, queue=data.draw(st.sampled_from(names[1:])), at="n1")
        if data.draw(st.booleans()):
            town.change(f"default/g{i}-0", deleted_at=5.0)
    s = town.session()
    where = f"queue/{data.draw(st.sampled_from(names[1:]))}"
    need = s.world.columns.vector(res(gpu=data.draw(numbers), cpu=data.draw(numbers)))
    rows = s.world.ledger.rows_up(where)
    standing = Standing((("used", np.maximum(s.world.ledger.used_in(rows), s.world.ledger.taken_in(rows))),))
    thorough = fits(s, limits(s.world), rows, standing, need[None, :]).ok
    assert fits_easily(s, limits(s.world), where, need) is thorough
    assert (
        fits_easily(s, limits(s.world), where, need, own=True)
        is fits(s, limits(s.world), rows[:1], Standing((("used", standing.total[:1]),)), need[None, :]).ok
    )


def test_pods_of_a_deleted_job_leave_its_queue_when_they_go_and_not_before() -> None:
    town = Town().nodes().see(queue("a", limit=res(gpu=2))).gang("old", 2, queue="a").cycle()
    town.lose("Group", "volcano:default/old")
    for i in range(2):
        town.change(f"default/old-{i}", deleted_at=town.now + 30)
    town.gang("new", queue="a").cycle()
    assert gpus(town, "queue/a") == 2
    assert town.verdict("new").code in ("QueueLimit", "Clearing")
    town.delete("default/old-0", "default/old-1").cycle()
    assert town.runs("new") == 1
