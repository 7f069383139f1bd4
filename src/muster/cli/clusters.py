"""A cluster out of a file: Kubernetes objects as kubectl or `muster snapshot` writes them, as a scenario without a story."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from muster.adapters.sim.manifests import KINDS, BadManifest, ref_of
from muster.cli.errors import UserError
from muster.cli.files import read_text
from muster.scenario.cast import is_manifest
from muster.scenario.steps import read_object
from muster.scenario.story import Run, Scenario, Written
from muster.snapshot.file import taken_at
from muster.yaml_marks import Faults, InputError, Marked, marked, read_all

PACKED: Final = ".gz"
SUFFIXES: Final = (".json", PACKED)
"""Files that are no scenarios for sure."""
_FIRST = ("Namespace", "PriorityClass", "Node")
_WHILE = Run(1, seconds=600.0, every_s=10.0)
"""What `muster sim` does with a cluster: it lets it live for a while."""


def read_cluster(path: Path) -> Scenario | None:
    """None where the file holds something else."""
    text = text_of(path)
    if text.lstrip()[:1] == "{" and (document := _json(text)) is not None:
        # A snapshot may have a hundred thousand objects: a reader that knows the place of each word would take minutes.
        return _scenario(path, list(_written(document, file=str(path))), starts_at=taken_at(document))
    try:
        documents = read_all(text, file=str(path))
    except InputError:
        return None
    if not documents or not is_manifest(documents[0]):
        return None
    faults = Faults(str(path))
    objects = [
        written for item in items_of(documents) if _is_known(item) for written in read_object(item, path="cluster", faults=faults)
    ]
    faults.raise_any()
    return _scenario(path, objects, starts_at=None)


def text_of(path: Path) -> str:
    if path.suffix != PACKED:
        return read_text(path)
    try:
        return gzip.decompress(path.read_bytes()).decode()
    except FileNotFoundError:
        return read_text(path)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: this is no text in gzip ({error})") from None


def items_of(documents: Sequence[Marked]) -> Iterator[Marked]:
    """The objects themselves, out of lists or not."""
    for document in documents:
        items = document.mapping.get("items")
        if items is not None and str(document.mapping.get("kind", marked("")).value).endswith("List"):
            yield from items.items
        else:
            yield document


def _is_known(item: Marked) -> bool:
    """Objects of other kinds are in many snapshots, and nothing to a scheduler."""
    kind, version = (str(item.mapping.get(key, marked("")).value) for key in ("kind", "apiVersion"))
    return (version.rpartition("/")[0], kind) in KINDS


def _json(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "kind" in found and "apiVersion" in found else None


def _written(document: Mapping[str, Any], *, file: str) -> Iterator[Written]:
    items = document.get("items") if str(document["kind"]).endswith("List") else [document]
    for item in items if isinstance(items, list) else ():
        group = str(item.get("apiVersion", "")).rpartition("/")[0] if isinstance(item, dict) else ""
        if not isinstance(item, dict) or (group, item.get("kind")) not in KINDS:
            continue
        try:
            ref_of(item)
        except BadManifest as bad:
            raise UserError(f"{file}: {bad}") from None
        yield Written(item, 1)


def _scenario(path: Path, objects: list[Written], *, starts_at: float | None) -> Scenario:
    objects.sort(key=lambda written: _FIRST.index(kind) if (kind := written.manifest["kind"]) in _FIRST else len(_FIRST))
    return Scenario(
        name=str(path), file=str(path), line=1, policy=None, objects=tuple(objects), steps=(_WHILE,), starts_at=starts_at
    )
