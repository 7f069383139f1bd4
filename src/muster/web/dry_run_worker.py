"""The process that answers questions about a cluster that it has read, each in a fork of itself.

It is the first to go where memory runs out, and it never outlives whoever asks: the end of a connection is the end of its process.
"""

from __future__ import annotations

import gc
import os
import pickle
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from muster.config import default_policy, load_policy
from muster.engine.hooks import Policy
from muster.engine.session import Session
from muster.forecast.dry_run import DryRun, NoSuchJob, dry_run, forecast, starts_with_evictions, warmed_store, with_outlook
from muster.forecast.gang_report import BeforeCycle, before_cycle, described, other_schedulers, with_cycle
from muster.forecast.start_time import RunTimes
from muster.jobs.job_input import BadJob, JobOptions, plan_answers, plan_document, read_job
from muster.jobs.workloads import WorkloadOptions
from muster.json_values import to_json
from muster.model.events import ClusterObject, Upsert
from muster.state.store import Store
from muster.web.cluster_view import start_rows
from muster.web.dry_runs import BAD_QUESTION, NOT_FOUND, OK, READ_CLUSTER, DryRunAnswer
from muster.yaml_positions import InputError


@dataclass(frozen=True, slots=True)
class QuestionedCluster:
    """`store` has all objects, and nothing was decided in it; `run` is a cycle that was decided in another one."""

    objects: Sequence[ClusterObject]
    now: float
    policy: Policy
    store: Store
    before: BeforeCycle
    run: DryRun


_MAX_MEMORY: Final = 4 * 2**30
_NICE: Final = 10
_OUTLOOK_S: Final = 3.0
_STARTS_S: Final = 5.0


def main() -> None:
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    # Nobody waits for forks.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _serve(socket.socket(fileno=int(sys.argv[1])), None)


def _serve(control: socket.socket, cluster: QuestionedCluster | None) -> None:
    while True:
        kind, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not descriptors:
            return
        with socket.socket(fileno=descriptors[0]) as connection:
            if os.fork() == 0:
                control.close()
                if kind == READ_CLUSTER:
                    _read_and_serve(connection)
                elif cluster is not None:
                    _answer(connection, cluster)
                os._exit(0)


def _read_and_serve(connection: socket.socket) -> None:
    with connection.makefile("rb") as file:
        timeout_s, length = msgspec.json.decode(file.readline())
        _limit_cpu(timeout_s)
        cluster = _read(file.read(length))
    # What never changes any more stays shared with the forks.
    gc.freeze()
    connection.sendall(b"r")
    _serve(connection, cluster)


def _limit_cpu(seconds: float) -> None:
    """Of this process; each fork begins at none."""
    limit = int(seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))


def _read(state: bytes) -> QuestionedCluster:
    objects, now, source = pickle.loads(state)
    policy = load_policy(source) if source else default_policy()
    store = warmed_store(policy, objects, now=now)
    seen: list[BeforeCycle] = []

    def look(session: Session) -> None:
        # Anybody may be asked about next.
        session.shows_all_domains = frozenset(session.world.facts.gangs)
        seen.append(before_cycle(session))

    run = dry_run(policy, objects, now=now, look=look)
    return QuestionedCluster(objects, now, policy, store, seen[0], run)


def _answer(connection: socket.socket, cluster: QuestionedCluster) -> None:
    with connection.makefile("rb") as file:
        question = msgspec.json.decode(file.readline())
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    answer = _ANSWERS[question["ask"]](question, cluster)
    connection.sendall(msgspec.json.encode(replace(answer, cpu_s=time.process_time())))


def _end_with(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.recv(1)
    os._exit(1)


def _plan(question: dict[str, Any], cluster: QuestionedCluster) -> DryRunAnswer:
    names = cluster.policy.settings.scheduler_names
    workload = WorkloadOptions(namespace=question["namespace"], scheduler_names=names)
    run_times = RunTimes() if question["outlook"] else None
    try:
        job = read_job([("job", question["job"])], cluster, JobOptions(workload), name="job")
        objects = (*cluster.objects, *job.objects)
        for obj in job.objects:
            cluster.store.fold(Upsert(obj))
        forecasts = forecast(
            cluster.policy, objects, job.uids, now=cluster.now, run_times=run_times, limit=_deadline, store=cluster.store
        )
    except (NoSuchJob, BadJob, InputError) as bad:
        return DryRunAnswer(BAD_QUESTION, {"error": str(bad)})
    answers = [plan_document(each) for each in plan_answers(forecasts, job)]
    return DryRunAnswer(OK, {"code": max(each["code"] for each in answers), "gangs": answers, "notes": job.notes})


def _why(question: dict[str, Any], cluster: QuestionedCluster) -> DryRunAnswer:
    name = question["gang"]
    gang = next((each for each in cluster.before.world.facts.gangs.values() if each.full_name == name), None)
    if gang is None:
        return DryRunAnswer(NOT_FOUND, {"error": f"there is no gang {name} in the cluster"})
    found = with_cycle(described(cluster.before, gang), cluster.run, gang)
    found = replace(found, other_schedulers=other_schedulers(cluster.objects, lambda pod: pod.gang_key == gang.key))
    if question["outlook"] and found.position and found.forecast is not None:
        asked = [(gang, found.forecast)]
        [more] = with_outlook(cluster.run, cluster.objects, asked, RunTimes(), limit=_deadline)
        found = replace(found, forecast=more)
    return DryRunAnswer(OK, to_json(found))


def _starts(_: dict[str, Any], cluster: QuestionedCluster) -> DryRunAnswer:
    """Of all gangs that wait, what the next cycles evict for them included."""
    gangs = {gang.key: gang for waiting in cluster.before.waiting.values() for gang in waiting}
    found = starts_with_evictions(cluster.run, cluster.objects, gangs.values(), RunTimes(), may_go_on=_until(_STARTS_S))
    return DryRunAnswer(OK, start_rows(found, gangs.values(), now=cluster.now))


_ANSWERS: Final = {"plan": _plan, "why": _why, "starts": _starts}


def _deadline() -> Callable[[], bool]:
    """So long it may take to find out when something starts, and again as long what would make it."""
    return _until(_OUTLOOK_S)


def _until(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() < until


if __name__ == "__main__":
    main()
