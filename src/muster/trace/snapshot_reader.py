"""Snapshots of a cluster over time as a history: what `kubectl get -o json` prints, one file for each time.

A pod ends by the first snapshot that says so or that is without it; what came and went between two snapshots is not seen. The pods
of all schedulers are jobs, but for those that belong to a node.
"""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from muster.kube.read.decoder import BadObject, Decoder
from muster.model.pod import Pod
from muster.trace.job_trace import JobTrace
from muster.trace.log_reader import ObservedCluster
from muster.yaml_positions import InputError, InputFault

_SUFFIXES = (".json", ".json.gz")


def is_snapshot_folder(folder: Path) -> bool:
    return folder.is_dir() and any(_time_of(path) is not None for path in folder.iterdir())


def snapshot_files(folder: Path) -> list[Path]:
    """In the order of their times; other files are passed over."""
    timed = sorted((at, path) for path in folder.iterdir() if (at := _time_of(path)) is not None)
    if not timed:
        advice = "no snapshot in it: name each after its time, such as 2026-01-01T12:00:00Z.json"
        raise InputError([InputFault(advice, file=str(folder))])
    return [path for _, path in timed]


def read_snapshots(folder: Path) -> JobTrace:
    seen, now = ObservedCluster(), 0.0
    for path in snapshot_files(folder):
        now = _time_of(path) or now
        items = _items(path)
        decoder = Decoder({str((item.get("spec") or {}).get("schedulerName") or "default-scheduler") for item in items})
        there: set[str] = set()
        for item in items:
            try:
                thing = decoder.decode(item)
            except BadObject as error:
                raise InputError([InputFault(str(error), file=str(path))]) from None
            if isinstance(thing, Pod):
                there.add(thing.uid)
                if thing.protected:
                    continue
            seen.upsert(thing)
        for uid in [uid for uid in seen.running if uid not in there]:
            seen.end(uid)
        seen.tick(now)
    seen.finish(now)
    return seen.trace()


def _time_of(path: Path) -> float | None:
    """The time that its name says; None where it says none."""
    suffix = next((suffix for suffix in _SUFFIXES if path.name.endswith(suffix)), None)
    if suffix is None:
        return None
    try:
        found = datetime.fromisoformat(path.name.removesuffix(suffix))
    except ValueError:
        return None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def _items(path: Path) -> list[dict[str, Any]]:
    try:
        data = path.read_bytes()
        document = msgspec.json.decode(gzip.decompress(data) if path.suffix == ".gz" else data)
    except (OSError, EOFError, msgspec.DecodeError) as error:
        raise InputError([InputFault(f"cannot be read: {error}", file=str(path))]) from None
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InputError([InputFault("is no list of objects, as `kubectl get pods,nodes -A -o json` prints it", file=str(path))])
    return items
