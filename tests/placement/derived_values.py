"""What is derived from placements must be the same as if it were worked out anew, whatever was tried and undone before."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
from tests.checks.counter_drift import drifted_counters

from muster.state.derived.host_ports import HostPorts
from muster.state.derived.placement_counters import counter_of
from muster.state.derived.topology_counts import SelectorView, TermHolders
from muster.state.derived.volume_mounts import Mounts
from muster.state.world import World

DERIVED = (SelectorView, TermHolders, HostPorts, Mounts)


def derived_amounts(world: World) -> dict[str, object]:
    """All that followers count, copied."""
    return {kind.__name__: deepcopy(counter_of(world, kind).figures()) for kind in DERIVED}


def assert_no_trace(world: World) -> None:
    """Every follower that is there counts what a new one would count, down to the tallies."""
    assert drifted_counters(world) == []
    for kind in DERIVED:
        kept = counter_of(world, kind)
        fresh = kind()
        fresh.follow(world)
        if isinstance(kept, SelectorView) and isinstance(fresh, SelectorView):
            for (aim, scope), topology_count in kept._counts_by_key.made.items():
                assert np.array_equal(topology_count.counts, fresh.topology_count(world, aim, scope).counts), (aim, scope)
        if isinstance(kept, TermHolders) and isinstance(fresh, TermHolders):
            for term, topology_count in kept._counts_by_key.made.items():
                assert np.array_equal(topology_count.counts, fresh.topology_count(world, term).counts), term
