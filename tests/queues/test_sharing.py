"""Sharing out amounts: worked results, and properties that hold whatever the figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.queues.queue_cluster import FixtureCluster, queue

from muster.engine import sharing
from muster.engine.sharing import Claims, branches, share_level, share_out, split_by_weight
from muster.state.resource_columns import Amounts


@dataclass(frozen=True)
class Sharer:
    """One that takes a part; one that does not lend keeps its minimum even if it requests less."""

    name: str
    weight: int
    request: int
    minimum: int = 0
    lends: bool = True


def fair_shares(total: int, sharers: Sequence[Sharer]) -> dict[str, int]:
    by_name = sorted(sharers, key=lambda s: s.name)
    minimum, weight, request = ([getattr(s, field) for s in by_name] for field in ("minimum", "weight", "request"))
    kept = [0 if s.lends else s.minimum for s in by_name]
    return dict(zip((s.name for s in by_name), share_level(total, minimum, weight=weight, request=request, kept=kept), strict=True))


def scale_minimums(total: int, minimum: Mapping[str, int]) -> dict[str, int]:
    return dict(zip(minimum, sharing.scale_minimums(total, [*minimum.values()]), strict=True))


class Tree:
    """Queues in a ledger, and one resource of each as a row."""

    def __init__(self, children: Mapping[str, Sequence[str]]) -> None:
        parents = {child: parent for parent, below in children.items() for child in below}
        cluster = FixtureCluster().upsert(*(queue(name, parent=parents[name]) for name in parents))
        self.world, self.names = cluster.session().world, sorted(parents)
        tops = tuple(f"queue/{name}" for name in sorted(children[""]))
        self.branches = branches(self.world, tops)

    def rows(self, value: Callable[[str], int]) -> Amounts:
        rows = np.zeros((len(self.world.ledger), 1), dtype=np.int64)
        for name in self.names:
            rows[self.world.ledger.row[f"queue/{name}"]] = value(name)
        return rows

    def read(self, rows: Amounts) -> dict[str, int]:
        return {name: int(rows[self.world.ledger.row[f"queue/{name}"], 0]) for name in self.names}


def share_down_tree(total: int, children: Mapping[str, Sequence[str]], sharer: Callable[[str], Sharer]) -> dict[str, int]:
    tree, by_name = Tree(children), {key: sharer(key) for below in children.values() for key in below}
    claims = Claims(
        request=tree.rows(lambda key: by_name[key].request),
        weight=tree.rows(lambda key: by_name[key].weight),
        minimum=tree.rows(lambda key: by_name[key].minimum),
        kept=tree.rows(lambda key: 0 if by_name[key].lends else by_name[key].minimum),
    )
    return tree.read(share_out(np.array([total]), tree.branches, claims, [0]))


def requests_up_tree(children: Mapping[str, Sequence[str]], own: Mapping[str, int], most: Mapping[str, int]) -> dict[str, int]:
    tree = Tree(children)

    def requested(key: str) -> int:
        return own[key] + sum(requested(child) for child in children.get(key, ()))

    nothing = tree.rows(lambda _: 0)
    return tree.read(sharing.requests_up_tree(tree.branches, tree.rows(requested), nothing, tree.rows(most.__getitem__))[1])


# -- results worked out by hand ----------------------------------------------------------------------------------------------------


def test_what_is_left_goes_by_weight_to_those_who_want_more_than_their_minimum() -> None:
    sharers = [Sharer("1", 40, 5, 10), Sharer("2", 60, 20, 15), Sharer("3", 50, 40, 20), Sharer("4", 80, 70, 15)]
    assert fair_shares(100, sharers) == {"1": 5, "2": 20, "3": 35, "4": 40}


def test_who_weighs_nothing_gets_its_minimum_and_no_more() -> None:
    sharers = [Sharer("1", 40, 5, 10), Sharer("2", 60, 20, 15), Sharer("3", 50, 40, 20), Sharer("4", 0, 70, 15)]
    assert fair_shares(100, sharers) == {"1": 5, "2": 20, "3": 40, "4": 15}


def test_a_guarantee_above_the_minimum_is_kept_by_who_weighs_nothing() -> None:
    sharers = [Sharer("1", 40, 5, 10), Sharer("2", 60, 20, 15), Sharer("3", 50, 40, 20), Sharer("4", 0, 70, 45)]
    assert fair_shares(100, sharers) == {"1": 5, "2": 20, "3": 30, "4": 45}


def test_81_gpus_are_shared_out_to_the_last_one() -> None:
    parts = fair_shares(81, [Sharer(name, 1, 81) for name in "abcdefg"])
    assert sum(parts.values()) == 81
    assert parts == {"a": 12, "b": 12, "c": 12, "d": 12, "e": 11, "f": 11, "g": 11}


def test_minimums_that_do_not_fit_are_scaled_and_the_odd_units_go_by_name() -> None:
    minimum = scale_minimums(200_000, dict.fromkeys("abc", 100_000))
    assert minimum == {"a": 66_666, "b": 66_666, "c": 66_666}
    parts = fair_shares(200_000, [Sharer(name, 1_000_000, 200_000, minimum[name]) for name in "abc"])
    assert parts == {"a": 66_667, "b": 66_667, "c": 66_666}


def test_two_that_want_everything_get_their_minimums_and_half_of_the_rest_each() -> None:
    assert fair_shares(96, [Sharer("test1", 96, 96, 50), Sharer("test2", 96, 96, 40)]) == {"test1": 53, "test2": 43}


def test_who_does_not_lend_keeps_its_minimum_unused() -> None:
    assert fair_shares(10, [Sharer("a", 1, 0, 6, lends=False), Sharer("b", 1, 10)]) == {"a": 6, "b": 4}


def test_a_branch_shares_out_what_it_got_itself() -> None:
    children = {"": ("p", "q"), "p": ("p1", "p2")}
    wants = {"p": 8, "q": 8, "p1": 8, "p2": 1}
    parts = share_down_tree(12, children, lambda key: Sharer(key, 1, wants[key]))
    assert parts == {"p": 6, "q": 6, "p1": 5, "p2": 1}


# -- properties --------------------------------------------------------------------------------------------------------------------

amounts = st.integers(0, 60)


@st.composite
def sharer_lists(draw: st.DrawFn) -> list[Sharer]:
    count = draw(st.integers(0, 6))
    return [
        Sharer(f"s{i}", draw(st.integers(0, 9)), draw(amounts), draw(st.integers(0, 25)), lends=draw(st.booleans()))
        for i in range(count)
    ]


def with_feasible_minimums(total: int, sharers: list[Sharer]) -> list[Sharer]:
    """The crowd with minimums that fit."""
    minimum = scale_minimums(total, {s.name: s.minimum for s in sharers})
    return [Sharer(s.name, s.weight, s.request, minimum[s.name], s.lends) for s in sharers]


@given(amounts, sharer_lists())
def test_the_parts_never_add_up_to_more_than_there_is(total: int, sharers: list[Sharer]) -> None:
    assert sum(fair_shares(total, with_feasible_minimums(total, sharers)).values()) <= total


@given(amounts, sharer_lists())
def test_nobody_gets_less_than_its_minimum_if_it_wants_that_much_nor_more_than_it_wants(total: int, sharers: list[Sharer]) -> None:
    sharers = with_feasible_minimums(total, sharers)
    parts = fair_shares(total, sharers)
    for sharer in sharers:
        assert parts[sharer.name] >= min(sharer.request, sharer.minimum)
        assert parts[sharer.name] <= (sharer.request if sharer.lends else max(sharer.request, sharer.minimum))


@given(amounts, sharer_lists())
def test_nothing_is_left_while_somebody_with_a_weight_wants_more(total: int, sharers: list[Sharer]) -> None:
    sharers = with_feasible_minimums(total, sharers)
    parts = fair_shares(total, sharers)
    if sum(parts.values()) < total:
        assert all(parts[s.name] >= s.request or s.weight == 0 for s in sharers)


@given(amounts, sharer_lists(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_means_nothing(total: int, sharers: list[Sharer], random: object) -> None:
    shuffled = list(sharers)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert fair_shares(total, sharers) == fair_shares(total, shuffled)


@given(amounts, sharer_lists(), st.integers(1, 20))
def test_more_weight_never_means_less_by_more_than_rounding(total: int, sharers: list[Sharer], more: int) -> None:
    if not sharers:
        return
    first = sharers[0]
    heavier = [Sharer(first.name, first.weight + more, first.request, first.minimum, first.lends), *sharers[1:]]
    assert fair_shares(total, heavier)[first.name] >= fair_shares(total, sharers)[first.name] - 1


@given(amounts, st.lists(st.integers(1, 9), min_size=1))
def test_a_split_by_weight_is_within_one_unit_of_the_exact_one_and_loses_nothing(total: int, weights: list[int]) -> None:
    parts = split_by_weight(total, weights)
    assert sum(parts) == total
    for part, weight in zip(parts, weights, strict=True):
        assert abs(Fraction(total * weight, sum(weights)) - part) < 1


# -- slow twins --------------------------------------------------------------------------------------------------------------------


def exact_level(total: int, sharers: Sequence[Sharer]) -> dict[str, Fraction]:
    """Water poured into vessels until it is used up, in exact fractions: what everybody would get without rounding."""
    part = {s.name: Fraction(min(s.request, s.minimum) if s.lends else s.minimum) for s in sharers}
    left = total - sum(part.values(), start=Fraction(0))
    thirsty = [s for s in sharers if s.weight and s.request > part[s.name]]
    while left > 0 and thirsty:
        weight = sum(s.weight for s in thirsty)
        steps: list[Fraction] = [left / weight, *((s.request - part[s.name]) / s.weight for s in thirsty)]
        step = min(steps)
        for sharer in thirsty:
            part[sharer.name] += step * sharer.weight
        left -= step * weight
        thirsty = [s for s in thirsty if s.request > part[s.name]]
    return part


@given(amounts, sharer_lists())
def test_whole_units_are_close_to_the_exact_water_level(total: int, sharers: list[Sharer]) -> None:
    sharers = with_feasible_minimums(total, sharers)
    exact, parts = exact_level(total, sharers), fair_shares(total, sharers)
    for sharer in sharers:
        assert abs(exact[sharer.name] - parts[sharer.name]) < len(sharers) + 1


def one_tree_by_hand(
    total: int, children: Mapping[str, Sequence[str]], sharers: Mapping[str, Sharer], key: str = ""
) -> dict[str, int]:
    """The same, one level after the other, by calling itself."""
    parts = fair_shares(total, with_feasible_minimums(total, [sharers[child] for child in children.get(key, ())]))
    for child in children.get(key, ()):
        parts |= one_tree_by_hand(parts[child], children, sharers, child)
    return parts


@st.composite
def forests(draw: st.DrawFn) -> dict[str, list[str]]:
    children: dict[str, list[str]] = {"": []}
    for i in range(draw(st.integers(0, 8))):
        parent = draw(st.sampled_from(sorted(children)))
        children.setdefault(parent, []).append(f"q{i}")
        children[f"q{i}"] = []
    return children


@given(amounts, forests(), st.data())
def test_a_tree_is_shared_out_level_by_level_and_no_branch_gives_more_than_it_got(
    total: int, children: dict[str, list[str]], data: st.DataObject
) -> None:
    own = {key: data.draw(amounts) for key in children}
    most = {key: data.draw(st.integers(0, 80)) for key in children}
    wants = requests_up_tree(children, own, most)
    sharers = {key: Sharer(key, data.draw(st.integers(0, 5)), wants[key], data.draw(st.integers(0, 20))) for key in children if key}
    parts = share_down_tree(total, children, sharers.__getitem__)
    assert parts == one_tree_by_hand(total, children, sharers)
    for key, below in children.items():
        assert sum(parts[child] for child in below) <= (parts[key] if key else total)


def wanted_by_hand(key: str, children: Mapping[str, Sequence[str]], own: Mapping[str, int], most: Mapping[str, int]) -> int:
    return min(most[key], own[key] + sum(wanted_by_hand(child, children, own, most) for child in children[key]))


@given(forests(), st.data())
def test_what_a_branch_wants_is_its_own_and_its_childrens_within_its_limit(
    children: dict[str, list[str]], data: st.DataObject
) -> None:
    own = {key: data.draw(amounts) for key in children}
    most = {key: data.draw(st.integers(0, 80)) for key in children}
    wants = requests_up_tree(children, own, most)
    assert wants == {key: wanted_by_hand(key, children, own, most) for key in children if key}


def test_fractions_are_rounded_once_at_the_end() -> None:
    sharers = [Sharer("a", 1, request=5), Sharer("b", 1, request=5), Sharer("c", 1, request=2)]
    assert fair_shares(10, sharers) == {"a": 4, "b": 4, "c": 2}
