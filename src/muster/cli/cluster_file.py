"""Reads a cluster from a file of Kubernetes objects, as kubectl or `muster snapshot` writes it, into a scenario without steps."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from muster.cli.errors import UserError
from muster.cli.scenario_files import read_text
from muster.scenario.step_parser import parse_manifest
from muster.scenario.symbol_table import is_manifest
from muster.scenario.syntax_tree import RunStep, Scenario, SourceManifest
from muster.sim.api_kinds import KINDS, BadManifest, ref_of
from muster.snapshot.snapshot_file import captured_at
from muster.yaml_positions import InputError, InputFaults, YamlValue, read_yaml_documents, yaml_value

GZIP_SUFFIX: Final = ".gz"
CLUSTER_SUFFIXES: Final = (".json", GZIP_SUFFIX)
"""Files that are never scenarios."""
_FIRST_KINDS = ("Namespace", "PriorityClass", "Node")
_DEFAULT_RUN = RunStep(1, seconds=600.0, every_s=10.0)
"""What `muster sim` does with a cluster: ten minutes of virtual time."""


def read_cluster(path: Path) -> Scenario | None:
    """None where the file contains something else, such as a scenario."""
    text = read_text_or_gzip(path)
    if text.lstrip()[:1] == "{" and (document := _json_object(text)) is not None:
        # A snapshot may have a hundred thousand objects: the YAML reader, which keeps positions, would take minutes.
        return _scenario(path, list(_manifests(document, file=str(path))), starts_at=captured_at(document))
    try:
        documents = read_yaml_documents(text, file=str(path))
    except InputError:
        return None
    if not documents or not is_manifest(documents[0]):
        return None
    faults = InputFaults(str(path))
    objects = [
        manifest
        for item in list_items(documents)
        if _is_known(item)
        for manifest in parse_manifest(item, path="cluster", faults=faults)
    ]
    faults.raise_any()
    return _scenario(path, objects, starts_at=None)


def read_text_or_gzip(path: Path) -> str:
    if path.suffix != GZIP_SUFFIX:
        return read_text(path)
    try:
        return gzip.decompress(path.read_bytes()).decode()
    except FileNotFoundError:
        return read_text(path)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not gzip-compressed text ({error})") from None


def list_items(documents: Sequence[YamlValue]) -> Iterator[YamlValue]:
    """The objects, those in lists included."""
    for document in documents:
        items = document.mapping.get("items")
        if items is not None and str(document.mapping.get("kind", yaml_value("")).value).endswith("List"):
            yield from items.items
        else:
            yield document


def _is_known(item: YamlValue) -> bool:
    """Objects of kinds that the scheduler does not read are ignored."""
    kind, version = (str(item.mapping.get(key, yaml_value("")).value) for key in ("kind", "apiVersion"))
    return (version.rpartition("/")[0], kind) in KINDS


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "kind" in found and "apiVersion" in found else None


def _manifests(document: Mapping[str, Any], *, file: str) -> Iterator[SourceManifest]:
    items = document.get("items") if str(document["kind"]).endswith("List") else [document]
    for item in items if isinstance(items, list) else ():
        group = str(item.get("apiVersion", "")).rpartition("/")[0] if isinstance(item, dict) else ""
        if not isinstance(item, dict) or (group, item.get("kind")) not in KINDS:
            continue
        try:
            ref_of(item)
        except BadManifest as bad:
            raise UserError(f"{file}: {bad}") from None
        yield SourceManifest(item, 1)


def _scenario(path: Path, objects: list[SourceManifest], *, starts_at: float | None) -> Scenario:
    objects.sort(
        key=lambda source: _FIRST_KINDS.index(kind) if (kind := source.manifest["kind"]) in _FIRST_KINDS else len(_FIRST_KINDS)
    )
    return Scenario(
        name=str(path), file=str(path), line=1, policy=None, objects=tuple(objects), steps=(_DEFAULT_RUN,), starts_at=starts_at
    )
