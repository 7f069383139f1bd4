"""Policies, one to a file. Plugins know the engine's hooks and the world, and never each other.

This file is the catalogue: a plugin that stands here can be named in a policy file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from muster.engine.hooks import Plugin
from muster.plugins.binpack import Binpack
from muster.plugins.capacity import Capacity
from muster.plugins.conformance import Conformance
from muster.plugins.creation import Creation
from muster.plugins.devices import Devices
from muster.plugins.drf import Drf
from muster.plugins.elastic_quota import ElasticQuotas
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

# In the order in which the manual tells of them: who goes first, where they may go, which node is best, and who may be evicted.
PLUGINS: Mapping[str, Callable[..., Plugin]] = {
    "priority": Priority,
    "creation": Creation,
    "drf": Drf,
    "proportion": Proportion,
    "capacity": Capacity,
    "elastic-quota": ElasticQuotas,
    "overcommit": Overcommit,
    "topology": Topology,
    "unschedulable": Unschedulable,
    "selectors": Selectors,
    "taints": Taints,
    "volumes": Volumes,
    "ports": Ports,
    "fit": Fit,
    "devices": Devices,
    "pod-affinity": InterPodAffinity,
    "spread-constraints": SpreadConstraints,
    "binpack": Binpack,
    "spread": Spread,
    "node-affinity-preference": NodeAffinityPreference,
    "taint-preference": TaintPreference,
    "pod-affinity-preference": PodAffinityPreference,
    "nominated": Nominated,
    "conformance": Conformance,
    "pdb": Pdb,
    "min-runtime": MinRuntime,
    "lost-work": LostWork,
}
