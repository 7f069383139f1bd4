"""How long the API takes to answer why and plan with 5,000 nodes and 40,000 pods: `.venv/bin/python -m tests.web.answer_speed`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.web.served import scenario

from muster.cli.cluster_state import read_cluster_state
from muster.web.dry_runs import DryRuns
from muster.web.view_source import encode_state

NODES, ROUNDS, GOAL_S = 5000, 5, 0.3
PLAN = "{{name: new, namespace: prod, queue: prod, pods: {}, requests: {{gpu: 8}}}}"
QUESTIONS: dict[str, dict[str, Any]] = {
    "why, of a gang that waits": {"ask": "why", "gang": "team-0/waits0"},
    "why, of a gang that runs": {"ask": "why", "gang": "team-0/runs0"},
    "plan of a job that runs now": {"ask": "plan", "job": PLAN.format(1), "namespace": ""},
    "plan of a job that cannot run": {"ask": "plan", "job": PLAN.format(100), "namespace": ""},
}


def full_cluster() -> str:
    def gang(number: int, name: str, rest: str, *, gpu: int = 8) -> str:
        queue = ("prod", "research")[number % 2]
        return f"- {{name: {name}{number}, namespace: team-{number % 20}, queue: {queue}, requests: {{gpu: {gpu}}}, {rest}}}"

    runs = (gang(at, "runs", f"pods: 8, age: 2h, runningOn: n{at + 1}", gpu=1) for at in range(NODES - 40))
    waits = (gang(at, "waits", f"pods: {50 if at < 20 else 6}, age: 1h") for at in range(30))
    return f"""
name: {NODES} nodes, most of them in use
nodes: [{{name: "n[1-{NODES}]", gpu: 8, cpu: 64, memory: 512Gi}}]
queues: [{{name: prod, deserved: {{gpu: 20000}}}}, {{name: research, deserved: {{gpu: 20000}}}}]
gangs:
""" + "\n".join((*runs, *waits))


async def measure(encoded: bytes) -> dict[str, tuple[float, float]]:
    """The median of some answers each, after the first, for which the cluster is read, and the same in CPU time."""

    async def state() -> bytes:
        return encoded

    found: dict[str, tuple[float, float]] = {}
    with closing(DryRuns()) as runs:
        for what, question in QUESTIONS.items():
            times = []
            for _ in range(ROUNDS + 1):
                began = time.perf_counter()
                answer = await runs.ask({"outlook": False, **question}, state)
                assert answer.status == 200, answer.body
                times.append((time.perf_counter() - began, answer.cpu_s))
            found.setdefault("the first question", times[0])
            found[what] = sorted(times[1:])[ROUNDS // 2]
    return found


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        state = read_cluster_state(scenario(Path(folder), full_cluster()))
    for what, (seconds, cpu_s) in asyncio.run(measure(encode_state(state.objects, now=state.now, policy=""))).items():
        goal = "" if what == "the first question" else f" ({GOAL_S:g}), {cpu_s:.2f} s of CPU"
        print(f"{what}: {seconds:.2f} s{goal}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
