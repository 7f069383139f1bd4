"""Reads a cluster from a file of Kubernetes objects, as kubectl or `muster snapshot` writes it, into a scenario without steps."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final

import yaml

from muster.cli.errors import UserError
from muster.cli.text_files import read_text
from muster.jobs.job_input import list_items
from muster.scenario.field_reader import Field
from muster.scenario.step_parser import parse_manifest
from muster.scenario.symbol_table import is_manifest
from muster.scenario.syntax_tree import RunStep, Scenario, SourceManifest
from muster.sim.api_kinds import KINDS, BadManifest, ref_of
from muster.sim.virtual_clock import VIRTUAL_START
from muster.snapshot.snapshot_file import captured_at
from muster.yaml_positions import InputError, InputFaults, YamlValue, yaml_value
from muster.yaml_reader import read_yaml_documents

GZIP_SUFFIX: Final = ".gz"
CLUSTER_SUFFIXES: Final = (".json", GZIP_SUFFIX)
"""Files that are never scenarios."""
STANDARD_INPUT: Final = "-"
_JOB_SUFFIXES = (".yaml", ".yml", ".json")
_FIRST_KINDS = ("Namespace", "PriorityClass", "Node")
_TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_TIME_KEY = re.compile(
    r'\b(?:creationTimestamp|startTime|startedAt|finishedAt|lastTransitionTime|lastHeartbeatTime|renewTime|time)"?:\s*["\']?\Z'
)
_KEY_WIDTH = 64
"""A key and the space before its value."""
_API_VERSION = re.compile(r"^apiVersion:", re.MULTILINE)
_DEFAULT_RUN = RunStep(1, seconds=600.0, every_s=10.0)
"""What `muster sim` does with a cluster: ten minutes of virtual time."""


class _PlainLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Times stay the texts that they are in JSON."""

    yaml_implicit_resolvers: ClassVar[Any] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def read_cluster(path: Path) -> Scenario | None:
    """None where the file contains something else, such as a scenario."""
    text = read_text_or_gzip(path)
    if not text.strip():
        raise UserError(f"{path}: this file is empty")
    if text.lstrip()[:1] == "{" and (document := _json_object(text)) is not None:
        # A snapshot may have a hundred thousand objects: the YAML reader, which keeps positions, would take minutes.
        return _scenario(
            path, list(_manifests(document, file=str(path))), starts_at=captured_at(document) or newest_time(text) or VIRTUAL_START
        )
    try:
        documents = read_yaml_documents(text, file=str(path))
    except InputError:
        return None
    if not documents or not is_manifest(documents[0]):
        return None
    faults = InputFaults(str(path))
    objects = [
        manifest for item in list_items(documents) if _is_known(item) for manifest in parse_manifest(Field(item, "cluster", faults))
    ]
    faults.raise_any()
    return _scenario(path, objects, starts_at=newest_time(text) or VIRTUAL_START)


def newest_time(text: str) -> float | None:
    """The newest time at which something happened to one of the objects: kubectl's output does not say when it was written."""
    for time in sorted(set(_TIME.findall(text)), reverse=True):
        at = text.find(time)
        while at >= 0:
            if _TIME_KEY.search(text[max(0, at - _KEY_WIDTH) : at]):
                return datetime.fromisoformat(time).timestamp()
            at = text.find(time, at + 1)
    return None


def plain_manifests(text: str) -> list[dict[str, Any]] | None:
    """The objects of YAML as kubectl writes it, those in lists included; None where it is something else, such as a scenario."""
    if not _API_VERSION.search(text):
        return None
    try:
        documents = [document for document in yaml.load_all(text, Loader=_PlainLoader) if document]
    except yaml.YAMLError:
        return None
    if not all(isinstance(document, dict) and "apiVersion" in document for document in documents):
        return None
    return [item for document in documents for item in document.get("items", [document]) if isinstance(item, dict)]


def read_text_or_gzip(path: Path) -> str:
    if path.suffix != GZIP_SUFFIX:
        return read_text(path)
    try:
        return gzip.decompress(path.read_bytes()).decode()
    except FileNotFoundError:
        return read_text(path)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not gzip-compressed text ({error})") from None


def job_texts(argument: str) -> Iterator[tuple[str, str]]:
    """The files of a job with their texts: one, those of a folder, or standard input."""
    path = Path(argument)
    if argument == STANDARD_INPUT:
        yield "<standard input>", sys.stdin.read()
    elif path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix in _JOB_SUFFIXES and file.is_file())
        if not files:
            raise UserError(f"{argument}: no manifest in this folder (no file that ends in {', '.join(_JOB_SUFFIXES)})")
        for file in files:
            yield str(file), read_text_or_gzip(file)
    else:
        yield argument, read_text_or_gzip(path)


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


def _scenario(path: Path, objects: list[SourceManifest], *, starts_at: float) -> Scenario:
    objects.sort(
        key=lambda source: _FIRST_KINDS.index(kind) if (kind := source.manifest["kind"]) in _FIRST_KINDS else len(_FIRST_KINDS)
    )
    return Scenario(
        name=str(path), file=str(path), line=1, policy=None, objects=tuple(objects), steps=(_DEFAULT_RUN,), starts_at=starts_at
    )
