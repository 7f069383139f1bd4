"""Plugins, one to a file; shared parts begin with an underscore. `PLUGINS` below is the catalogue that a policy file names them by.

A plugin may read the session and the world and answer the hooks of `muster.engine.hooks`. It must not import another plugin, keep
counters of its own or change the world; a new rule is a new file and an entry below. Tests: tests/plugins, tests/placement,
tests/topology, tests/queues and tests/quota, with slow twins of every column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from muster.engine.hooks import Plugin
from muster.plugins.best_fit import BestFit
from muster.plugins.binpack import Binpack
from muster.plugins.capacity import Capacity
from muster.plugins.conformance import Conformance
from muster.plugins.creation import Creation
from muster.plugins.devices import Devices
from muster.plugins.drf import Drf
from muster.plugins.elastic_quota import ElasticQuotas
from muster.plugins.fgd import Fgd
from muster.plugins.fit import Fit
from muster.plugins.lost_work import LostWork
from muster.plugins.min_runtime import MinRuntime
from muster.plugins.node_affinity_preference import NodeAffinityPreference
from muster.plugins.nominated import Nominated
from muster.plugins.overcommit import Overcommit
from muster.plugins.pdb import Pdb
from muster.plugins.pod_affinity import InterPodAffinity
from muster.plugins.pod_affinity_preference import PodAffinityPreference
from muster.plugins.ports import Ports
from muster.plugins.priority import Priority
from muster.plugins.proportion import Proportion
from muster.plugins.selectors import Selectors
from muster.plugins.spread import Spread
from muster.plugins.spread_constraints import SpreadConstraints
from muster.plugins.taint_preference import TaintPreference
from muster.plugins.taints import Taints
from muster.plugins.topology import Topology
from muster.plugins.unschedulable import Unschedulable
from muster.plugins.volumes import Volumes
from muster.plugins.worth import Worth

SECTIONS: Mapping[str, tuple[type[Plugin], ...]] = {
    "Order of gangs and queues, and quotas.": (Priority, Creation, Drf, Proportion, Capacity, ElasticQuotas, Overcommit),
    "Filters.": (Topology, Unschedulable, Selectors, Taints, Volumes, Ports, Fit, Devices, InterPodAffinity, SpreadConstraints),
    "Scores.": (Binpack, BestFit, Fgd, Spread, NodeAffinityPreference, TaintPreference, PodAffinityPreference, Nominated),
    "Victims.": (Conformance, Pdb, MinRuntime, LostWork, Worth),
}
"""All plugins in the order of the manual."""
PLUGINS: Mapping[str, Callable[..., Plugin]] = {str(plugin.name): plugin for section in SECTIONS.values() for plugin in section}
"""By the name that a policy file gives them: the default of the field `name`."""
