"""Writes jobs as Muster's own table, which `table_reader` reads again. What a table has no column for is left out."""

from __future__ import annotations

import csv
from typing import IO

from muster.model.resource_amounts import CPU, MEMORY
from muster.trace.columns import FORMATS
from muster.trace.job_trace import GPU_MODEL_LABEL, JobTrace, TraceJob, gpus_of, gpus_on

_HEADER = tuple(columns[0] for columns in FORMATS["csv"].columns.values())
_NODE_HEADER = ("name", "cpu_m", "memory", "gpus", "gpu_model")


def write_jobs(trace: JobTrace, file: IO[str]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_HEADER)
    writer.writerows(map(_job_row, trace.jobs))


def write_nodes(trace: JobTrace, file: IO[str]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_NODE_HEADER)
    for node in trace.nodes:
        amounts = (node.allocatable[CPU], node.allocatable[MEMORY], gpus_on(node))
        writer.writerow((node.name, *amounts, node.labels.get(GPU_MODEL_LABEL, "")))


def _job_row(job: TraceJob) -> tuple[object, ...]:
    request = job.signature.request
    models = [model for term in job.signature.node_affinity.required or () for each in term.expressions for model in each.values]
    fields: dict[str, object] = {
        "name": job.name,
        "arrival": f"{job.arrival_s:.10g}",
        "run_s": f"{job.run_s:.10g}",
        "members": job.members,
        "cpu_m": request[CPU],
        "memory": request[MEMORY],
        "gpus": f"{gpus_of(job.signature):g}",
        "gpu_models": "|".join(models),
        "queue": job.queue,
        "priority": job.priority,
        "checkpoint_s": f"{job.checkpoint_s:g}",
        "declared_s": "" if job.declared_s is None else f"{job.declared_s:.10g}",
    }
    return tuple(fields[field] for field in FORMATS["csv"].columns)
