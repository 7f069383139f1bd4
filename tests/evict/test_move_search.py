"""Which pods are moved so that a gang fits: the cheapest set where few have to be moved, the cheapest nodes where many have to."""

from __future__ import annotations

from itertools import chain, combinations, product
from random import Random

import numpy as np
import pytest

from muster.engine.consolidate.movable_pods import GangPrice
from muster.engine.consolidate.move_packing import MemberKind
from muster.engine.consolidate.move_search import MAX_TRIED, MoveProblem, Moves, cheapest_moves

SIZE = 8


def problem_of(
    free: list[list[int]], members: list[tuple[list[int], int, list[bool]]], pods: list[tuple[int, list[int], float]]
) -> MoveProblem:
    """Pods by row, request and price, each a gang of its own that may go anywhere."""
    return MoveProblem(
        free=np.array(free, dtype=np.int64),
        members=[MemberKind(np.array(request, dtype=np.int64), count, np.array(rows)) for request, count, rows in members],
        row=np.array([row for row, _, _ in pods], dtype=np.intp),
        request=np.array([request for _, request, _ in pods], dtype=np.int64),
        price=np.array([price for _, _, price in pods]),
        gang=np.arange(len(pods)),
        gangs={number: GangPrice(1, 10 * price) for number, (_, _, price) in enumerate(pods)},
        allowed=[np.ones(len(free), dtype=np.bool_) for _ in pods],
    )


def free_after(problem: MoveProblem, moves: Moves) -> list[list[int]]:
    free = problem.free.copy()
    for pod, row in moves.targets:
        assert row != problem.row[pod]
        free[problem.row[pod]] += problem.request[pod]
        free[row] -= problem.request[pod]
    left: list[list[int]] = free.tolist()
    return left


def all_fit(free: list[list[int]], members: list[tuple[list[int], list[bool]]]) -> bool:
    """By trying every row for every member."""
    if not members:
        return True
    (request, rows), rest = members[0], members[1:]
    for row, usable in enumerate(rows):
        left = [have - ask for have, ask in zip(free[row], request, strict=True)]
        if usable and min(left) >= 0 and all_fit([*free[:row], left, *free[row + 1 :]], rest):
            return True
    return False


@pytest.mark.parametrize("seed", range(12))
def test_where_many_nodes_have_to_be_cleared_these_are_the_cheapest(seed: int) -> None:
    chance = Random(seed)
    nodes, stores, wanted = 12, 6, MAX_TRIED + chance.randint(1, 3)
    used, pods = [0] * nodes, []
    for node in range(1, nodes):  # One is empty as it is.
        for _ in range(chance.choice((1, 1, 2))):
            size = chance.randint(1, 3)
            used[node] += size
            pods.append((node, [size, 1], round(chance.uniform(1, 9), 3)))
    chance.shuffle(pods)
    free = [*([SIZE - gpus, 50] for gpus in used), *([SIZE, 50] for _ in range(stores))]
    usable = [*[True] * nodes, *[False] * stores]
    problem = problem_of(free, [([SIZE, 2], wanted + 1, usable)], pods)
    found = next(cheapest_moves(problem))
    left = free_after(problem, found)
    assert all(min(row) >= 0 for row in left)
    assert all_fit(left, [([SIZE, 2], usable)] * (wanted + 1))
    price_of = [sum(price for row, _, price in pods if row == node) for node in range(1, nodes)]
    assert found.key[0] == pytest.approx(sum(sorted(price_of)[:wanted]))


@pytest.mark.parametrize("seed", range(40))
def test_where_few_have_to_be_moved_nothing_cheaper_would_do(seed: int) -> None:
    chance = Random(f"few {seed}")
    nodes, used, pods = 4, [0] * 4, []
    for _ in range(4):
        node, size = chance.randrange(nodes), chance.randint(1, 4)
        if used[node] + size <= SIZE:
            used[node] += size
            pods.append((node, [size, 1, 0], float(chance.randint(1, 9))))
    for node in range(nodes):
        used[node] += chance.randint(0, SIZE - used[node]) // 2
    free = [[SIZE - gpus, 3, 0] for gpus in used]
    kinds = [
        ([chance.choice((4, 6, 7, 8)), 1, 0], 1, [chance.random() < 0.8 for _ in range(nodes)]),
        ([chance.randint(2, 5), 1, 0], 2, [True] * nodes),
    ]
    problem = problem_of(free, kinds, pods)
    members = [(request, rows) for request, count, rows in kinds for _ in range(count)]
    prices = [
        sum(pods[pod][2] for pod in moved)
        for moved in chain.from_iterable(combinations(range(len(pods)), size) for size in range(1, len(pods) + 1))
        if any(_works(problem, moved, rows, members) for rows in product(range(nodes), repeat=len(moved)))
    ]
    found = next(cheapest_moves(problem), None)
    assert (found is None) == (not prices)
    if found is not None:
        assert all_fit(free_after(problem, found), members)
        assert found.key[0] == min(prices)


def _works(
    problem: MoveProblem, moved: tuple[int, ...], rows: tuple[int, ...], members: list[tuple[list[int], list[bool]]]
) -> bool:
    if any(problem.row[pod] == row for pod, row in zip(moved, rows, strict=True)):
        return False
    left = free_after(problem, Moves((0.0, 0, 0, ()), tuple(zip(moved, rows, strict=True))))
    return all(min(row) >= 0 for row in left) and all_fit(left, members)
