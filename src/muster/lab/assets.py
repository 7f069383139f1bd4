"""Finds the binaries of `etcd` and `kube-apiserver`: in KUBEBUILDER_ASSETS, in the cache, or by building them.

The cache is MUSTER_CACHE, or `muster` in the user's cache folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

VERSION = "1.36.4"
"""The version of Kubernetes. The files in `build/` are for this version."""

OnProgress = Callable[[str], None]


class NoServerBinaries(Exception):
    """The binaries are not on this machine and cannot be built. The message says why."""


@dataclass(frozen=True, slots=True)
class Assets:
    etcd: Path
    kube_apiserver: Path

    @staticmethod
    def of(folder: Path) -> Assets:
        return Assets(folder / "etcd", folder / "kube-apiserver")

    @property
    def missing(self) -> list[str]:
        return [path.name for path in (self.etcd, self.kube_apiserver) if not os.access(path, os.X_OK) or not path.is_file()]


def report_on_stderr(line: str) -> None:
    print(f"muster: {line}", file=sys.stderr, flush=True)


def get_assets(*, report: OnProgress = report_on_stderr) -> Assets:
    """The binaries, built if necessary, which takes minutes. Raises NoServerBinaries."""
    found = find_assets(report=report)
    if found is None:
        # Imported here: the build needs modules that not every platform has.
        from muster.lab.server_build import build_into

        found = Assets.of(build_into(cache_folder() / f"kube-{VERSION}", report=report))
    return found


def find_assets(*, report: OnProgress = report_on_stderr) -> Assets | None:
    """The binaries, if they are on this machine already."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if folder:
        assets = Assets.of(Path(folder))
        if not assets.missing:
            return assets
        report(f"KUBEBUILDER_ASSETS={folder} has no {' and no '.join(assets.missing)}; looking elsewhere")
    cached = Assets.of(cache_folder() / f"kube-{VERSION}")
    return None if cached.missing else cached


def cache_folder() -> Path:
    if folder := os.environ.get("MUSTER_CACHE"):
        return Path(folder).absolute()
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:
        raise NoServerBinaries(f"no cache folder: {error}; set MUSTER_CACHE") from None
    return home / "muster"
