"""What a PodGroup is told while it waits: Volcano's controllers make its pods only once it was let in."""

from __future__ import annotations

from tests.queues.town import Town, queue, res

from muster.model.effects import GroupStatus
from muster.model.pod import Dialect


def phases(t: Town) -> dict[str, str]:
    """By PodGroup, of those whose status changed in the last cycle."""
    said = [effect for effect in t.outcome.effects if isinstance(effect, GroupStatus)]
    return {status.group.rsplit("/", 1)[-1]: status.phase for status in said}


def test_a_podgroup_of_volcanos_is_told_that_it_was_let_in_before_it_has_pods() -> None:
    t = Town().nodes(1, gpu=8).see(queue("q", limit=res(gpu=4)))
    t.gang("fits", 0, queue="q", least=2, min_resources=res(gpu=2))
    t.gang("big", 0, queue="q", least=8, min_resources=res(gpu=8)).cycle()
    assert phases(t) == {"fits": "PreScheduling", "big": "Pending"}


def test_a_podgroup_that_was_kept_out_is_told_when_it_is_let_in() -> None:
    t = Town().nodes(1, gpu=8).see(queue("q", limit=res(gpu=4)))
    t.gang("old", 3, queue="q", at="n1").gang("new", 0, queue="q", least=2, min_resources=res(gpu=2)).cycle()
    assert phases(t)["new"] == "Pending"
    t.delete("default/old-0", "default/old-1", "default/old-2").cycle()
    assert phases(t)["new"] == "PreScheduling"


def test_a_podgroup_that_asks_for_nothing_in_particular_is_let_in() -> None:
    t = Town().nodes(1, gpu=1).see(queue("q")).gang("x", 0, queue="q", least=4).cycle()
    assert phases(t) == {"x": "PreScheduling"}


def test_a_podgroup_of_koordinators_waits_for_its_pods() -> None:
    t = Town().nodes(1, gpu=1).gang("x", 1, least=2, dialect=Dialect.KOORDINATOR).cycle()
    assert phases(t) == {"x": "Pending"}
