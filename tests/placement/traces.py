"""What is derived from placements must be the same as if it were worked out anew, whatever was tried and undone before."""

from __future__ import annotations

from copy import deepcopy

import numpy as np

from muster.state.census import Holders, Looks
from muster.state.follow import drifted, following
from muster.state.mounts import Mounts
from muster.state.ports import HostPorts
from muster.state.world import World

FOLLOWERS = (Looks, Holders, HostPorts, Mounts)


def figures(world: World) -> dict[str, object]:
    """All that followers count, copied."""
    return {kind.__name__: deepcopy(following(world, kind).figures()) for kind in FOLLOWERS}


def assert_no_trace(world: World) -> None:
    """Every follower that is there counts what a new one would count, down to the tallies."""
    assert drifted(world) == []
    for kind in FOLLOWERS:
        kept = following(world, kind)
        fresh = kind()
        fresh.follow(world)
        if isinstance(kept, Looks) and isinstance(fresh, Looks):
            for (aim, scope), tally in kept._tallies.made.items():
                assert np.array_equal(tally.counts, fresh.tally(world, aim, scope).counts), (aim, scope)
        if isinstance(kept, Holders) and isinstance(fresh, Holders):
            for term, tally in kept._tallies.made.items():
                assert np.array_equal(tally.counts, fresh.tally(world, term).counts), term
