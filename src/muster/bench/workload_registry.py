"""The groups of workloads that there are. A module of this package with a tuple `WORKLOADS` is in; nothing else has to name it."""

from __future__ import annotations

import importlib
import pkgutil

from muster import bench
from muster.bench.workload import Workload

FIRST_GROUP = "core"
ON_DEMAND = ("live",)
"""Groups that are measured only when somebody names them: they take minutes, and servers that not every machine has."""


def groups() -> dict[str, tuple[Workload, ...]]:
    """Workloads by group: the decision path first, the others by name."""
    found: dict[str, list[Workload]] = {}
    for module in pkgutil.iter_modules(bench.__path__, prefix=f"{bench.__name__}."):
        for workload in getattr(importlib.import_module(module.name), "WORKLOADS", ()):
            found.setdefault(workload.group, []).append(workload)
    return {group: tuple(found[group]) for group in sorted(found, key=lambda group: (group != FIRST_GROUP, group))}
