"""Builds etcd and kube-apiserver once, from public Go modules with known checksums.

`build/servers.mod` lists the modules and `build/servers.sum` their checksums. The modules and the compiler's cache, about 3 GB, are
removed afterwards: only the two binaries stay.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from tempfile import mkdtemp

from muster.lab.assets import VERSION, Assets, NoServerBinaries, OnProgress
from muster.lab.go_toolchain import find_go

_GO_PACKAGES = {"etcd": "go.etcd.io/etcd/server/v3", "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver"}
_MIN_FREE_DISK_BYTES = 5 << 30
_REPORT_EVERY_S = 15.0
_ERROR_LINES = 8


def build_into(folder: Path, *, report: OnProgress) -> Path:
    """Build both binaries into the folder, or wait for a process that does. Raises NoServerBinaries."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _build_lock(folder.with_name(f"{folder.name}.lock"), report=report):
            if Assets.of(folder).missing:
                _build(folder, report=report)
    except OSError as error:
        raise NoServerBinaries(f"the servers cannot be built in {folder.parent}: {error}") from error
    return folder


@contextmanager
def _build_lock(path: Path, *, report: OnProgress) -> Iterator[None]:
    """One build at a time. The lock ends with its process, so that a killed build blocks nothing."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another process is building the servers; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(folder: Path, *, report: OnProgress) -> None:
    for leftover in folder.parent.glob(f"{folder.name}.building-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    if (free := shutil.disk_usage(folder.parent).free) < _MIN_FREE_DISK_BYTES:
        raise NoServerBinaries(
            f"{folder.parent} has {free >> 20} MB free, and a build of the servers needs {_MIN_FREE_DISK_BYTES >> 20} MB"
        )
    scratch = Path(mkdtemp(prefix=f"{folder.name}.building-", dir=folder.parent))
    try:
        report(f"building etcd and kube-apiserver {VERSION} into {folder}, once; this takes some minutes")
        binaries = _compile(scratch, report=report)
        if folder.exists():
            shutil.rmtree(folder)
        # Atomic: the folder never has only one of the binaries.
        binaries.rename(folder)
        report(f"built {folder}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _compile(scratch: Path, *, report: OnProgress) -> Path:
    go = find_go(scratch / "toolchain", report=report)
    module, binaries = scratch / "module", scratch / "binaries"
    module.mkdir()
    binaries.mkdir()
    recipe = files("muster.lab") / "build"
    for source, target in (("servers.mod", "go.mod"), ("servers.sum", "go.sum")):
        (module / target).write_bytes((recipe / source).read_bytes())
    for program, package in _GO_PACKAGES.items():
        command = [str(go), "build", "-v", "-trimpath", "-ldflags", _linker_flags(), "-o", str(binaries / program), package]
        _run(command, program=program, folder=module, environment=_environment(scratch), report=report)
    return binaries


def _linker_flags() -> str:
    # Without this the server reports v0.0.0, which misleads clients that check its version.
    return f"-s -w -X k8s.io/component-base/version.gitVersion=v{VERSION}"


def _environment(scratch: Path) -> Mapping[str, str]:
    flags = os.environ.get("GOFLAGS", "")
    own = {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOCACHE": str(scratch / "compiled"),
        "GOMODCACHE": str(scratch / "modules"),
        "GOTMPDIR": str(scratch),
        # Modules are read-only otherwise, and could not be removed.
        "GOFLAGS": f"{flags} -modcacherw".strip(),
    }
    return {**os.environ, **own}


def _run(command: list[str], *, program: str, folder: Path, environment: Mapping[str, str], report: OnProgress) -> None:
    began = reported = time.monotonic()
    fetched = compiled = 0
    last: deque[str] = deque(maxlen=_ERROR_LINES)
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                fetched += line.startswith("go: downloading ")
                compiled += _is_package_line(line)
                last.append(line.strip())
                if time.monotonic() - reported >= _REPORT_EVERY_S:
                    reported = time.monotonic()
                    report(f"  {program}: {fetched} modules downloaded, {compiled} packages compiled, {reported - began:.0f} s")
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        reason = "; ".join(line for line in last if not _is_package_line(line)) or "no reason given"
        raise NoServerBinaries(f"go could not build {program} {VERSION} on {platform.system()}/{platform.machine()}: {reason}")
    report(f"  {program}: done, {compiled} packages compiled in {time.monotonic() - began:.0f} s")


def _is_package_line(line: str) -> bool:
    return re.fullmatch(r"[\w.~/+-]+\s*", line) is not None
