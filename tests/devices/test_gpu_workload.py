"""Which GPUs are of no use to the workload: the ways to count them agree, and the workload is rounded as the documents say."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.plugins._gpu_workload import GpuWorkload, Kind, _rounded

WIDEST = 8
QUICK = settings(deadline=None)
kinds = st.builds(
    Kind, count=st.integers(1, 9), need=st.sampled_from([25, 50, 100, 120]), cpu_m=st.integers(0, 20), memory=st.integers(0, 20)
)
mixes = st.dictionaries(kinds, st.integers(1, 9), min_size=1, max_size=6).map(lambda found: tuple(sorted(found.items())))
nodes = st.tuples(st.integers(0, WIDEST), st.integers(-2, 24), st.integers(-2, 24))


def plainly(mix: tuple[tuple[Kind, int], ...], gpus: list[int], cpu: int, memory: int) -> int:
    """As the paper says it: for each kind all that is free where it does not fit, else what is free of GPUs that are too small."""
    found = 0
    for kind, weight in mix:
        enough = [each for each in gpus if each >= kind.need]
        fits = len(enough) >= kind.count and cpu >= kind.cpu_m and memory >= kind.memory
        found += weight * (sum(gpus) - (sum(enough) if fits else 0))
    return found


@QUICK
@given(mixes, st.lists(nodes, min_size=1, max_size=6))
def test_few_nodes_many_nodes_and_shared_gpus_are_counted_alike(
    mix: tuple[tuple[Kind, int], ...], some: list[tuple[int, int, int]]
) -> None:
    workload = GpuWorkload(mix, WIDEST)
    expected = [plainly(mix, [100] * gpus, cpu, memory) for gpus, cpu, memory in some]
    gpus, cpu, memory = np.array(some, dtype=np.int64).T
    assert workload.of_whole(gpus, cpu, memory).tolist() == expected
    assert workload.of_whole(gpus.repeat(40), cpu.repeat(40), memory.repeat(40))[::40].tolist() == expected
    shared = np.where(np.arange(WIDEST) < gpus[:, None], 100, 0)
    assert workload.of_shared(shared, cpu, memory).tolist() == expected


@QUICK
@given(mixes, st.lists(st.integers(0, 100), min_size=WIDEST, max_size=WIDEST), st.integers(0, 24), st.integers(0, 24))
def test_parts_of_gpus_are_counted_as_the_paper_says(
    mix: tuple[tuple[Kind, int], ...], gpus: list[int], cpu: int, memory: int
) -> None:
    (found,) = GpuWorkload(mix, WIDEST).of_shared(np.array([gpus]), np.array([cpu]), np.array([memory])).tolist()
    assert found == plainly(mix, gpus, cpu, memory)


def test_a_few_pods_more_leave_the_mix_as_it_is() -> None:
    one, other = Kind(1, 100, 8000, 64), Kind(8, 100, 64_000, 512)
    assert _rounded(Counter({one: 1000, other: 20})) == _rounded(Counter({one: 1010, other: 21}))
    assert _rounded(Counter({one: 1000, other: 20})) != _rounded(Counter({one: 1000, other: 40}))


def test_pods_of_about_the_same_size_are_one_kind_and_the_most_frequent_stands_for_it() -> None:
    usual, like_it, larger = Kind(1, 100, 8000, 64), Kind(1, 100, 7000, 64), Kind(1, 100, 9000, 64)
    assert _rounded(Counter({usual: 3, like_it: 1, larger: 1})) == ((usual, 40), (larger, 10))
    assert _rounded(Counter({usual: 1, like_it: 3, larger: 1})) == ((like_it, 40), (larger, 10))
