"""Many runs: each history with each policy, in this process, in several, or on a Dask cluster.

A run is a value that goes anywhere, with the texts of its files in it; what it comes to does not depend on where it was made.
Results are written as they come, so that what was interrupted goes on; a worker that dies costs the runs that it had, which are
made again.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import msgspec

from muster import __version__
from muster.config import load_policy
from muster.trace.job_simulation import JobSimulation, fill
from muster.trace.job_trace import JobTrace, filling, shuffled
from muster.trace.made_trace import make_trace, parse_made_trace
from muster.trace.outcome import mean_allocation_figure, result_of
from muster.trace.run_result import RunResult
from muster.trace.table_reader import read_trace
from muster.yaml_positions import InputError, InputFault

# A run whose worker died is made again so many times: then it is the run that kills.
_RETRIES = 3


@dataclass(frozen=True, slots=True)
class NamedFile:
    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class HistorySource:
    """What a history is read from: files with all that is in them, or what it is made from. `snapshots` are those of a folder."""

    jobs: NamedFile | None = None
    snapshots: tuple[NamedFile, ...] = ()
    generate: str = ""
    nodes: NamedFile | str = ""
    columns: NamedFile | None = None


@dataclass(frozen=True, slots=True)
class PolicyText:
    """`name`: what it is called in tables; `file`: beside it plugins of its own are searched for."""

    name: str
    text: str
    file: str


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """One history with one policy. `fill`: percent of all GPUs that is asked for by jobs that never end; None plays it in time."""

    source: HistorySource
    policy: PolicyText
    seed: int
    fill: float | None = None

    def digest(self) -> str:
        """The same for equal runs of one version."""
        return hashlib.sha256(msgspec.json.encode((__version__, self))).hexdigest()[:32]


OnDone = Callable[[int, int], None]
"""Called with how many of how many runs are done."""


def history_of(source: HistorySource, seed: int) -> JobTrace:
    """Seed 0 is the history itself; the others have its jobs in another order. A made history is made anew for each."""
    if source.jobs is None and not source.snapshots:
        spec = parse_made_trace(source.generate)
        return make_trace(replace(spec, seed=spec.seed + seed))
    return shuffled(_read(source), seed=seed)


@lru_cache(maxsize=1)
def _read(source: HistorySource) -> JobTrace:
    with tempfile.TemporaryDirectory() as folder:

        def put(file: NamedFile | None, kind: str) -> Path | None:
            if file is None:
                return None
            path = Path(folder, kind, file.name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(file.data)
            return path

        nodes = source.nodes if isinstance(source.nodes, str) else str(put(source.nodes, "nodes"))
        for snapshot in source.snapshots:
            put(snapshot, "jobs")
        jobs = put(source.jobs, "jobs") or Path(folder, "jobs")
        return read_trace(jobs, nodes=nodes, columns=put(source.columns, "columns"))


def result_of_run(run: PolicyRun) -> RunResult:
    policy = load_policy(run.policy.text, file=run.policy.file)
    if run.fill is None:
        return result_of(JobSimulation(history_of(run.source, run.seed), policy).run())
    trace = history_of(run.source, 0)
    return RunResult((mean_allocation_figure(fill(trace, filling(trace, percent=run.fill, seed=run.seed), policy)),))


def results_of(
    runs: Sequence[PolicyRun], *, processes: int = 1, dask: str = "", folder: Path | None = None, on_done: OnDone | None = None
) -> list[RunResult]:
    """Of all runs, in their order. `dask`: the address of a scheduler. `folder`: results are kept there, and those there taken."""
    found: dict[int, RunResult] = {}
    saved = _SavedResults(folder) if folder is not None else None
    for number, run in enumerate(runs):
        if saved is not None and (known := saved.read(run)) is not None:
            found[number] = known
    left = {number: run for number, run in enumerate(runs) if number not in found}
    if on_done is not None:
        on_done(len(found), len(runs))
    for number, result in _made(left, processes=processes, dask=dask):
        found[number] = result
        if saved is not None:
            saved.write(runs[number], result)
        if on_done is not None:
            on_done(len(found), len(runs))
    return [found[number] for number in range(len(runs))]


def _made(runs: Mapping[int, PolicyRun], *, processes: int, dask: str) -> Iterator[tuple[int, RunResult]]:
    """As they are done."""
    if dask and runs:
        yield from _on_dask(runs, dask)
    elif processes > 1 and len(runs) > 1:
        yield from _in_processes(runs, processes)
    else:
        for number, run in runs.items():
            yield number, result_of_run(run)


def _in_processes(runs: Mapping[int, PolicyRun], processes: int) -> Iterator[tuple[int, RunResult]]:
    left, tries = dict(runs), 0
    while left:
        with _pool(min(processes, len(left))) as pool:
            futures = {pool.submit(result_of_run, run): number for number, run in left.items()}
            try:
                for future in as_completed(futures):
                    result = future.result()
                    del left[futures[future]]
                    yield futures[future], result
            except BrokenProcessPool:
                tries += 1
                if tries > _RETRIES:
                    raise InputError([InputFault(f"processes died {tries} times, with {len(left)} runs left")]) from None


@contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Whoever is interrupted does not wait for what still runs."""
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _on_dask(runs: Mapping[int, PolicyRun], address: str) -> Iterator[tuple[int, RunResult]]:
    """Each result is fetched as it is done: a worker that dies after that costs nothing."""
    try:
        import distributed
    except ImportError:
        advice = "Dask is not installed: pip install 'muster-scheduler[sweep]'"
        raise InputError([InputFault(advice, file="--dask")]) from None
    try:
        client = distributed.Client(address, timeout="10s")  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise InputError([InputFault(f"no Dask scheduler answers at {address}: {error}", file="--dask")]) from None
    with client:
        futures = {client.submit(result_of_run, run, pure=False, retries=_RETRIES): number for number, run in runs.items()}
        for future in distributed.as_completed(futures):  # type: ignore[no-untyped-call]
            yield futures[future], future.result()


class _SavedResults:
    """A file for each run, by its digest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError([InputFault(f"cannot be used: {error.strerror}", file=str(folder))]) from None

    def read(self, run: PolicyRun) -> RunResult | None:
        try:
            return msgspec.json.decode(self._path(run).read_bytes(), type=RunResult)
        except (OSError, msgspec.DecodeError):
            return None

    def write(self, run: PolicyRun, result: RunResult) -> None:
        """Whole or not at all."""
        path = self._path(run)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(msgspec.json.encode(result))
        part.replace(path)

    def _path(self, run: PolicyRun) -> Path:
        return self._folder / f"{run.digest()}.json"
