"""Where the programs `etcd` and `kube-apiserver` come from: a folder that the user names, the cache, or a build of our own.

KUBEBUILDER_ASSETS names a folder that has both. MUSTER_CACHE moves the cache, which else is `muster` in the user's cache folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

VERSION = "1.36.4"
"""Of Kubernetes. The files in `build/` belong to it."""

OnProgress = Callable[[str], None]


class NoServerBinaries(Exception):
    """This machine has no servers and cannot make them. The message says why."""


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
    """The programs, built first if need be, which takes minutes. Raises NoServers."""
    found = find_assets(report=report)
    if found is None:
        # Only who really builds needs all that a build needs.
        from muster.lab.server_build import build_into

        found = Assets.of(build_into(cache_folder() / f"kube-{VERSION}", report=report))
    return found


def find_assets(*, report: OnProgress = report_on_stderr) -> Assets | None:
    """The programs, if they are on this machine already."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    if named:
        assets = Assets.of(Path(named))
        if not assets.missing:
            return assets
        report(f"KUBEBUILDER_ASSETS={named} has no {' and no '.join(assets.missing)}; looking elsewhere")
    cached = Assets.of(cache_folder() / f"kube-{VERSION}")
    return None if cached.missing else cached


def cache_folder() -> Path:
    if named := os.environ.get("MUSTER_CACHE"):
        return Path(named).absolute()
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:
        raise NoServerBinaries(f"there is no cache folder: {error}; set MUSTER_CACHE") from None
    return home / "muster"
