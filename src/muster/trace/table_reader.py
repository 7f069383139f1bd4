"""Reads tables of jobs and of nodes. What is wrong is said with its file and line."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from muster.model.node import Node
from muster.model.pod import PodSignature
from muster.model.queue import Queue
from muster.model.resource_amounts import CPU, GPU, LARGEST_AMOUNT, MEMORY, BadQuantity, Resources, amount
from muster.trace.columns import FORMATS, NODE_COLUMNS, SWF_HEADER, FieldColumns, TraceFormat, format_of, read_format
from muster.trace.job_trace import JobTrace, TraceJob, node_of, signature_of, sorted_jobs, with_shared_gpus
from muster.trace.log_reader import read_log
from muster.trace.snapshot_reader import read_snapshots
from muster.yaml_positions import InputError, InputFault, nearest

_UNKNOWN = frozenset({"", "-1", "nan", "none", "null", "na"})
_SWF_PARTS = frozenset({"2", "3", "4"})
"""The states of lines of the Standard Workload Format that tell of a part of a job: another line has the whole."""
_MIB, _GIB = 2**20, 2**30
# A trace that does not say what a node has is about GPUs.
_NODE_CPU_M, _NODE_MEMORY = 96_000, 1024 * _GIB


def read_trace(jobs: Path, *, nodes: str = "", columns: Path | None = None) -> JobTrace:
    """A history from files: jobs in any format that is known or described, nodes from a table or written as `64x8`."""
    described = read_format(columns) if columns is not None else None
    trace = _read(jobs, described)
    if nodes:
        trace = replace(trace, nodes=_read_nodes(nodes))
    if not trace.nodes:
        raise InputError([InputFault("the history names no nodes: give a table of them, or such as --nodes 64x8", file=str(jobs))])
    trace = _with_shares(trace, described)
    # What a log has requests devices in its own way, and its nodes list them.
    return with_shared_gpus(trace) if nodes else trace


def read_jobs(jobs: Path, *, columns: Path | None = None) -> JobTrace:
    """The jobs alone, and the nodes only where the file itself has them."""
    return _read(jobs, read_format(columns) if columns is not None else None)


def _read(jobs: Path, described: TraceFormat | None) -> JobTrace:
    if jobs.is_dir():
        return read_snapshots(jobs)
    if jobs.name.endswith((".jsonl", ".jsonl.gz")):
        return read_log(_lines(jobs), file=str(jobs))
    return _read_table(jobs, described)


def _with_shares(trace: JobTrace, described: TraceFormat | None) -> JobTrace:
    """Queues that deserve their percent of the cluster; all the same where nothing is said."""
    if trace.queues:
        return trace
    names = sorted({job.queue for job in trace.jobs if job.queue})
    percents = (described.queues if described is not None else None) or {name: 100 / len(names) for name in names}
    gpus = {GPU: trace.gpus}
    total = {name: sum(node.allocatable[name] for node in trace.nodes) for name in (CPU, MEMORY)} if not trace.gpus else gpus
    queues = [
        Queue(
            f"queue/{name}",
            uid=name,
            version=1,
            deserved=Resources.of({key: int(value * percents.get(name, 0) // 100) for key, value in total.items()}),
        )
        for name in dict.fromkeys([*names, *percents])
    ]
    return replace(trace, queues=tuple(queues))


# -- jobs ----------------------------------------------------------------------------------------------------------------------


def _read_table(path: Path, described: TraceFormat | None) -> JobTrace:
    file = str(path)
    name = _format_by_name(path)
    rows = _philly_rows(path) if name == "philly-json" else _rows(path)
    jobs: list[TraceJob] = []
    chosen, left_out = described, 0
    for line, entries in rows:
        if chosen is None:
            chosen = FORMATS[name] if name else format_of(entries, file=file)
        if described is not None and not (jobs or left_out):
            _check_columns(described, entries, file=file)
        job = _job(_Row(entries, chosen.columns, file=file, line=line), chosen)
        if job is None:
            left_out += 1
        else:
            jobs.append(job)
    if not jobs:
        raise InputError([InputFault("there is no job with a run time in it", file=file)])
    return JobTrace(sorted_jobs(jobs), left_out=left_out)


def _format_by_name(path: Path) -> str:
    """Of a file whose name says it; empty where the header does."""
    if ".swf" in path.suffixes:
        return "swf"
    return "philly-json" if ".json" in path.suffixes or path.name.removesuffix(".gz") == "cluster_job_log" else ""


def _check_columns(described: TraceFormat, entries: Mapping[str, str], *, file: str) -> None:
    """A column that is described, but not there, would be a value that every job lacks."""
    faults: list[InputFault] = []
    for name, columns in described.described.items():
        if columns and not any(column in entries for column in columns):
            text = f"no column {' or '.join(map(repr, columns))} for {name}"
            faults.append(InputFault(text, file=file, line=1, suggestion=nearest(columns[0], entries)))
    if faults:
        raise InputError(faults)


def _job(row: _Row, described: TraceFormat) -> TraceJob | None:
    """None for a job that never ran."""
    arrival = row.time("arrival")
    run_s = row.number("run_s")
    if run_s is None:
        end, start = row.time("end"), row.time("start")
        begin = start if start is not None else arrival
        run_s = end - begin if end is not None and begin is not None else None
    if arrival is None or run_s is None or run_s <= 0:
        return None
    signature, members = _request(row, described)
    priority = described.priorities.get(row.text("priority"))
    return TraceJob(
        name=row.text("name") or f"job-{row.line}",
        arrival_s=arrival,
        run_s=run_s,
        members=members,
        signature=signature,
        # What was a quota in a log is a queue here: a table says nothing of its minimum.
        queue=row.text("queue").removeprefix("quota/"),
        priority=int(priority if priority is not None else row.priority()),
        checkpoint_s=row.number("checkpoint_s") or described.checkpoint_s,
        declared_s=row.number("declared_s") or None,
    )


def _request(row: _Row, described: TraceFormat) -> tuple[PodSignature, int]:
    """What a member asks for, and how many members there are."""
    members, gpus, cpu_m = row.whole("members"), row.number("gpus") or 0.0, row.cpu_m()
    if members == 0:
        raise row.fault("members", "a job has one member or more")
    if total_gpus := row.ceiling("total_gpus"):
        members = members or math.ceil(total_gpus / described.gpus_per_member)
        gpus = math.ceil(total_gpus / members)
    if total_cpus := row.ceiling("total_cpus"):
        members = members or math.ceil(total_cpus / described.cpus_per_member)
        cpu_m = 1000 * math.ceil(total_cpus / members)
    milli = row.number("gpu_milli")
    if gpus == 1 and milli:
        gpus = milli / 1000
    if gpus > 1 and gpus != int(gpus):
        raise row.fault("gpus", f"{gpus:g} GPUs are neither a whole number nor a part of one")
    share = math.ceil(round(100 * gpus, 6)) if gpus < 1 else 0
    models = tuple(model for model in row.text("gpu_models").split("|") if model)
    return signature_of(cpu_m=cpu_m, memory=row.memory(), gpus=int(gpus), share=share, models=models), members or 1


class _Row:
    """One line of a table, by the fields that its columns are for."""

    def __init__(self, entries: Mapping[str, str], columns: FieldColumns, *, file: str, line: int) -> None:
        self.line = line
        self._entries, self._columns, self._file = entries, columns, file

    def text(self, field: str, *, unknown: frozenset[str] = _UNKNOWN) -> str:
        for column in self._columns.get(field, ()):
            found = self._entries.get(column)
            if found is not None and found.strip().lower() not in unknown:
                return found.strip()
        return ""

    def number(self, field: str) -> float | None:
        text = self.text(field)
        if not text:
            return None
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not 0 <= found <= LARGEST_AMOUNT:
            raise self.fault(field, f"{text!r} is no number from 0 on")
        return found

    def whole(self, field: str) -> int | None:
        found = self.number(field)
        if found is not None and found != int(found):
            raise self.fault(field, f"{self.text(field)!r} is no whole number")
        return None if found is None else int(found)

    def priority(self) -> int:
        """Of either sign: here -1 is a value like any other."""
        text = self.text("priority", unknown=_UNKNOWN - {"-1"})
        try:
            found = float(text or 0)
        except ValueError:
            found = math.nan
        if not (abs(found) <= LARGEST_AMOUNT and found == int(found)):
            raise self.fault("priority", f"{text!r} is no whole number")
        return int(found)

    def ceiling(self, field: str) -> int:
        """A number, of which a part counts in full; nothing where there is none."""
        return math.ceil(self.number(field) or 0)

    def time(self, field: str) -> float | None:
        """Seconds, or a date with a time of day."""
        text = self.text(field)
        try:
            seconds = float(text) if text else None
        except ValueError:
            pass
        else:
            if seconds is not None and not 0 <= seconds <= LARGEST_AMOUNT:
                raise self.fault(field, f"{text!r} is no number of seconds from 0 on")
            return seconds
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise self.fault(field, f"{text!r} is neither a number of seconds nor a time such as 2017-10-09 07:01:55") from None
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()

    def cpu_m(self) -> int:
        return int(self.number("cpu_m") or 1000 * (self.number("cpu") or 0))

    def memory(self) -> int:
        for field, unit in (("memory_mib", _MIB), ("memory_gib", _GIB)):
            if (found := self.number(field)) is not None:
                return int(found * unit)
        text = self.text("memory")
        try:
            return amount(MEMORY, text) if text else 0
        except BadQuantity as error:
            raise self.fault("memory", str(error)) from None

    def fault(self, field: str, message: str) -> InputError:
        column = next((name for name in self._columns.get(field, ()) if self._entries.get(name)), field)
        return InputError([InputFault(f"column {column}: {message}", file=self._file, line=self.line)])


# -- nodes ---------------------------------------------------------------------------------------------------------------------


def _read_nodes(written: str) -> tuple[Node, ...]:
    """From a table, or `64x8` or `64x8:V100`, several with commas: so many nodes with so many GPUs."""
    path = Path(written)
    if path.suffix:
        return _nodes_in(path)
    found: list[Node] = []
    for part in written.split(","):
        size, _, model = part.partition(":")
        count, _, gpus = size.partition("x")
        if not (count.isdecimal() and gpus.isdecimal() and int(count)):
            raise InputError([InputFault(f"{part!r}: write a file, or such as 64x8 or 64x8:V100", file="--nodes")])
        for _ in range(int(count)):
            name = f"node-{len(found):04d}"
            found.append(node_of(name, cpu_m=_NODE_CPU_M, memory=_NODE_MEMORY, gpus=int(gpus), model=model))
    return tuple(found)


def _nodes_in(path: Path) -> tuple[Node, ...]:
    found: dict[str, Node] = {}
    for line, entries in _rows(path):
        row = _Row(entries, NODE_COLUMNS, file=str(path), line=line)
        name = row.text("name") or f"node-{line}"
        if name in found:
            raise row.fault("name", f"there is a node {name!r} already")
        cpu_m = row.cpu_m() or _NODE_CPU_M
        memory = row.memory() or _NODE_MEMORY
        found[name] = node_of(name, cpu_m=cpu_m, memory=memory, gpus=row.whole("gpus") or 0, model=row.text("model"))
    if not found:
        raise InputError([InputFault("there is no node in it", file=str(path))])
    return tuple(found.values())


# -- files ---------------------------------------------------------------------------------------------------------------------


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield from file
    except (OSError, EOFError) as error:
        raise InputError([InputFault(f"cannot be read: {error}", file=str(path))]) from None


def _texts(path: Path) -> Iterator[str]:
    for number, line in enumerate(_lines(path), start=1):
        try:
            yield line.decode()
        except UnicodeDecodeError:
            raise InputError([InputFault("is no text in UTF-8", file=str(path), line=number)]) from None


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Each row with its line: of a table with a header, or of the Standard Workload Format, which has none."""
    if ".swf" in path.suffixes:
        for number, text in enumerate(_texts(path), start=1):
            if text.strip() and not text.startswith(";"):
                entries = _entries(SWF_HEADER, text.split(), path, number)
                if entries["status"] not in _SWF_PARTS:
                    yield number, entries
        return
    reader = csv.reader(_texts(path))
    header: Sequence[str] | None = None
    try:
        for row in reader:
            if header is None:
                header = [name.strip().lstrip("\ufeff") for name in row]
                if twice := next((name for name in header if name and header.count(name) > 1), ""):
                    raise InputError([InputFault(f"there are two columns {twice!r}", file=str(path), line=reader.line_num)])
            elif row:
                yield reader.line_num, _entries(header, row, path, reader.line_num)
    except csv.Error as error:
        raise InputError([InputFault(f"is no table: {error}", file=str(path), line=reader.line_num)]) from None


def _entries(header: Sequence[str], row: Sequence[str], path: Path, line: int) -> Mapping[str, str]:
    if len(row) != len(header):
        raise InputError([InputFault(f"{len(row)} columns, the header has {len(header)}", file=str(path), line=line)])
    return dict(zip(header, row, strict=True))


def _philly_rows(path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    """The jobs of Philly's `cluster_job_log`, each with the line where it begins: the time of all its attempts, and the GPUs of the
    last one. An attempt without a start or an end counts for nothing."""
    data = b"".join(_lines(path))
    try:
        jobs = msgspec.json.decode(data, type=list[msgspec.Raw])
    except msgspec.DecodeError as error:
        raise InputError([InputFault(f"is no list of jobs as in Philly's cluster_job_log: {error}", file=str(path))]) from None
    at, line = 0, 1
    for text in map(bytes, jobs):
        begin = data.index(text, at)
        line += data.count(b"\n", at, begin)
        yield line, _philly_job(text, path, line)
        line += text.count(b"\n")
        at = begin + len(text)


def _philly_job(text: bytes, path: Path, line: int) -> Mapping[str, str]:
    try:
        job = msgspec.json.decode(text, type=_PhillyJob)
    except msgspec.DecodeError as error:
        fault = f"is no job as in Philly's cluster_job_log: {error}"
        raise InputError([InputFault(fault, file=str(path), line=line)]) from None
    run_s, servers = 0.0, list[_PhillyNode]()
    for attempt in job.attempts:
        entries = {"start_time": attempt.start_time or "", "end_time": attempt.end_time or ""}
        span = _Row(entries, {name: (name,) for name in entries}, file=str(path), line=line)
        start, end = span.time("start_time"), span.time("end_time")
        if start is not None and end is not None:
            run_s, servers = run_s + max(end - start, 0.0), attempt.detail
    gpus = sum(len(on.gpus) for on in servers)
    named = {"jobid": job.jobid, "vc": job.vc, "submitted_time": job.submitted_time or ""}
    return named | {"run_s": f"{run_s:g}", "members": str(len(servers) or 1), "gpus": str(gpus)}


class _PhillyNode(msgspec.Struct):
    gpus: list[str] = []


class _PhillyAttempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_PhillyNode] = []


class _PhillyJob(msgspec.Struct):
    jobid: str
    submitted_time: str | None = None
    vc: str = ""
    attempts: list[_PhillyAttempt] = []
