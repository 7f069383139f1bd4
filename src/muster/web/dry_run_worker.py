"""The process that answers one question: a line of JSON and a cluster on standard input, an answer on standard output.

It is the first to go where memory runs out, and it never outlives its time.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from muster.config import default_policy, load_policy
from muster.engine.hooks import Policy
from muster.engine.session import Session
from muster.forecast.dry_run import NoSuchJob, dry_run, forecast, with_outlook
from muster.forecast.gang_report import GangAnswer, described, with_cycle
from muster.forecast.start_time import RunTimes
from muster.jobs.job_input import BadJob, JobOptions, plan_answers, plan_document, read_job
from muster.jobs.workloads import WorkloadOptions
from muster.json_values import to_json
from muster.model.events import ClusterObject
from muster.model.gang import Gang
from muster.web.dry_runs import BAD_QUESTION, NOT_FOUND, OK, DryRunAnswer
from muster.yaml_positions import InputError


@dataclass(frozen=True, slots=True)
class QuestionedCluster:
    objects: Sequence[ClusterObject]
    now: float
    policy: Policy


_MAX_MEMORY: Final = 4 * 2**30
_NICE: Final = 10
_OUTLOOK_S: Final = 3.0


def main() -> None:
    _limit(cpu_s=int(sys.argv[1]))
    question = msgspec.json.decode(sys.stdin.buffer.readline())
    objects, now, source = pickle.load(sys.stdin.buffer)
    state = QuestionedCluster(objects, now, load_policy(source) if source else default_policy())
    found = _plan(question, state) if question["ask"] == "plan" else _why(question["gang"], state)
    sys.stdout.buffer.write(msgspec.json.encode(found))


def _limit(*, cpu_s: int) -> None:
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _plan(question: dict[str, Any], state: QuestionedCluster) -> DryRunAnswer:
    names = state.policy.settings.scheduler_names
    workload = WorkloadOptions(namespace=question["namespace"], scheduler_names=names)
    try:
        job = read_job([("job", question["job"])], state, JobOptions(workload), name="job")
        objects = (*state.objects, *job.objects)
        forecasts = forecast(state.policy, objects, job.uids, now=state.now, run_times=RunTimes(), limit=_deadline)
    except (NoSuchJob, BadJob, InputError) as bad:
        return DryRunAnswer(BAD_QUESTION, {"error": str(bad)})
    answers = [plan_document(each) for each in plan_answers(forecasts, job)]
    return DryRunAnswer(OK, {"code": max(each["code"] for each in answers), "gangs": answers, "notes": job.notes})


def _why(name: str, state: QuestionedCluster) -> DryRunAnswer:
    seen: list[tuple[Gang, GangAnswer]] = []

    def look(session: Session) -> None:
        seen.extend((gang, described(session, gang)) for gang in session.world.facts.gangs.values() if gang.full_name == name)

    run = dry_run(state.policy, state.objects, now=state.now, look=look)
    if not seen:
        return DryRunAnswer(NOT_FOUND, {"error": f"there is no gang {name} in the cluster"})
    gang, known = seen[0]
    found = with_cycle(known, run, gang)
    if found.position and found.forecast is not None:
        asked = [(gang, found.forecast)]
        [more] = with_outlook(run, state.objects, asked, RunTimes(), limit=_deadline)
        found = replace(found, forecast=more)
    return DryRunAnswer(OK, to_json(found))


def _deadline() -> Callable[[], bool]:
    """So long it may take to find out when something starts, and again as long what would make it."""
    until = time.monotonic() + _OUTLOOK_S
    return lambda: time.monotonic() < until


if __name__ == "__main__":
    main()
