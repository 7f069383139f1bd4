"""Which columns of a table say what: the formats that are known, and the small file that describes any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from muster.yaml_positions import InputError, InputFault, InputFaults, YamlValue
from muster.yaml_reader import read_yaml

T = TypeVar("T")

FieldColumns = Mapping[str, tuple[str, ...]]
"""For each field of a job the columns that may have it: the first with a value counts."""

JOB_FIELDS = (
    "name", "arrival", "run_s", "start", "end", "members", "cpu", "cpu_m", "total_cpus", "memory", "memory_mib", "memory_gib",
    "gpus", "gpu_milli", "total_gpus", "gpu_models", "queue", "priority", "checkpoint_s", "declared_s",
)  # fmt: skip
NODE_COLUMNS: FieldColumns = {
    "name": ("name", "sn"),
    "cpu": ("cpu",),
    "cpu_m": ("cpu_m", "cpu_milli"),
    "memory": ("memory",),
    "memory_mib": ("memory_mib",),
    "gpus": ("gpus", "gpu"),
    "model": ("gpu_model", "model"),
}
SWF_HEADER = (
    "job", "submit", "wait", "run", "procs", "cpu_time", "used_memory", "requested_procs", "requested_time", "requested_memory",
    "status", "user", "group", "executable", "queue", "partition", "preceding", "think",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """How a table of jobs is read. `queues` gives each queue its percent of the cluster, `priorities` a number to each text."""

    columns: FieldColumns
    gpus_per_member: int = 8
    """Where a job only says how many GPUs it has together: so many are on one node at most."""
    cpus_per_member: int = 1
    checkpoint_s: float = 0.0
    priorities: Mapping[str, int] = field(default_factory=dict)
    queues: Mapping[str, float] = field(default_factory=dict)
    described: FieldColumns = field(default_factory=dict)
    """What the user said of columns: a table must have one of each."""


def _columns(**names: str) -> FieldColumns:
    return {name: tuple(columns.split()) for name, columns in names.items()}


FORMATS: Mapping[str, TraceFormat] = {
    "csv": TraceFormat(
        _columns(
            name="name", arrival="arrival_s", run_s="run_s", members="members", cpu_m="cpu_m", memory="memory", gpus="gpus",
            gpu_models="gpu_models", queue="queue", priority="priority", checkpoint_s="checkpoint_s", declared_s="declared_s",
        )
    ),
    "openb": TraceFormat(
        _columns(
            name="name", arrival="creation_time", start="scheduled_time", end="deletion_time", cpu_m="cpu_milli",
            memory_mib="memory_mib", gpus="num_gpu", gpu_milli="gpu_milli", gpu_models="gpu_spec",
        )
    ),
    "philly": TraceFormat(_columns(arrival="timestamp", run_s="duration", total_gpus="num_gpus", queue="cluster")),
    "philly-json": TraceFormat(
        _columns(name="jobid", arrival="submitted_time", run_s="run_s", members="members", total_gpus="gpus", queue="vc")
    ),
    "acme": TraceFormat(
        _columns(
            name="job_id", arrival="submit_time", run_s="duration", members="node_num", total_gpus="gpu_num",
            total_cpus="cpu_num", memory_gib="mem_per_pod_GB", queue="type",
        )
    ),
    "helios": TraceFormat(
        _columns(
            name="job_id", arrival="submit_time", run_s="duration", members="node_num", total_gpus="gpu_num",
            total_cpus="cpu_num", queue="vc",
        )
    ),
    "swf": TraceFormat(
        _columns(
            name="job", arrival="submit", run_s="run", total_cpus="requested_procs procs", queue="queue",
            declared_s="requested_time",
        )
    ),
}  # fmt: skip
_TELLING: Mapping[str, tuple[str, ...]] = {
    "openb": ("gpu_milli", "gpu_spec"),
    "philly": ("timestamp", "gpu_time"),
    "acme": ("job_id", "node_num", "type"),
    "helios": ("job_id", "vc", "gpu_num"),
    "csv": ("arrival_s", "run_s"),
}
"""The columns by which a format is told from its header."""


def format_of(header: Iterable[str], *, file: str) -> TraceFormat:
    """The format that a table with these columns has."""
    there = set(header)
    for name, telling in _TELLING.items():
        if there.issuperset(telling):
            return FORMATS[name]
    advice = "describe them in a file and name it with --columns (docs/traces.md)"
    raise InputError([InputFault(f"the columns are those of no known format; {advice}", file=file)])


def read_format(path: Path) -> TraceFormat:
    """A description of columns: see docs/traces.md."""
    file = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError([InputFault(f"cannot be read: {error}", file=file)]) from None
    faults = InputFaults(file)
    root = read_yaml(text, file=file, faults=faults)
    if not root.is_mapping:
        faults.add(root, f"a description of columns is a mapping, not {root.type_text}")
    base = root.mapping.get("format")
    if base is not None and base.text not in FORMATS:
        faults.unknown(base, "format", FORMATS)
    found = FORMATS.get("csv" if base is None else base.text, FORMATS["csv"])
    changes: dict[str, Any] = {}
    for name, value in root.mapping.items():
        if name == "columns":
            given = _named(value, _column_names, JOB_FIELDS, faults)
            changes |= {name: {**(found.columns if base is not None else {}), **given}, "described": given}
        elif name in _NUMBERS:
            changes[_NUMBERS[name]] = _number(value, faults)
        elif name in ("queues", "priorities"):
            changes[name] = _named(value, _number, (), faults)
        elif name != "format":
            faults.unknown(root.keys[name], "key", ("format", "columns", "queues", "priorities", *_NUMBERS))
    faults.raise_any()
    return replace(found, **changes)


_NUMBERS = {"gpusPerMember": "gpus_per_member", "cpusPerMember": "cpus_per_member", "checkpointSeconds": "checkpoint_s"}


def _named(
    value: YamlValue, read: Callable[[YamlValue, InputFaults], T], known: tuple[str, ...], faults: InputFaults
) -> dict[str, T]:
    if not value.is_mapping:
        faults.add(value, f"must be a mapping, not {value.type_text}")
    for name in value.mapping:
        if known and name not in known:
            faults.unknown(value.keys[name], "field of a job", known)
    return {name: read(each, faults) for name, each in value.mapping.items()}


def _column_names(value: YamlValue, faults: InputFaults) -> tuple[str, ...]:
    names = value.items if value.is_list else (value,)
    if any(not each.is_scalar or not each.text for each in names):
        faults.add(value, "must be the name of a column, or a list of them")
    return tuple(each.text for each in names)


def _number(value: YamlValue, faults: InputFaults) -> float:
    if isinstance(value.value, int | float) and not isinstance(value.value, bool) and value.value >= 0:
        return value.value
    faults.add(value, f"must be a number from 0 on, not {value.type_text}")
    return 0
