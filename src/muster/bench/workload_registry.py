"""Finds the groups of workloads: modules with a tuple `WORKLOADS`, in this package and in `benchmarks` of a checkout."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from muster import bench
from muster.bench.workload import Workload

FIRST_GROUP = "core"
ON_DEMAND = ("live", "quality", "start", "trace", "history", "large-history")
"""Groups that run only when named: they take minutes, and `live` needs an etcd and a kube-apiserver."""

_CHECKOUT = Path(__file__).parents[3]
_BENCHMARKS = "benchmarks"


def groups() -> dict[str, tuple[Workload, ...]]:
    """Workloads by group: the decision path first, the others by name."""
    found: dict[str, list[Workload]] = {}
    for module in _modules():
        for workload in getattr(module, "WORKLOADS", ()):
            found.setdefault(workload.group, []).append(workload)
    return {group: tuple(found[group]) for group in sorted(found, key=lambda group: (group != FIRST_GROUP, group))}


def _modules() -> Iterator[ModuleType]:
    for package in (bench, *_checkout_package()):
        for module in pkgutil.iter_modules(package.__path__, prefix=f"{package.__name__}."):
            yield importlib.import_module(module.name)


def _checkout_package() -> Iterator[ModuleType]:
    """The package `benchmarks`, where Muster runs from a checkout."""
    if (_CHECKOUT / _BENCHMARKS / "__init__.py").is_file():
        if str(_CHECKOUT) not in sys.path:
            sys.path.append(str(_CHECKOUT))
        yield importlib.import_module(_BENCHMARKS)
