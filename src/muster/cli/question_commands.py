"""Commands that ask about a cluster: `plan`, `why`, tables, the page, a snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from muster.cli import USAGE_ERROR
from muster.cli.command_options import (
    AFTER_STEPS,
    ANSWER_CODES,
    AS_SCHEDULER,
    AT,
    CLUSTER,
    CONTEXT,
    HISTORY,
    JSON,
    KUBECONFIG,
    NAMESPACE,
    OTHER_CODES,
    OUTPUT,
    POLICY,
    RUN_TIME,
    SECONDS,
    AnsweringCommand,
    end,
    is_json,
)

app = typer.Typer()


@app.command(
    cls=AnsweringCommand,
    short_help="Predict whether a job would run, and what it would evict.",
    epilog="Exit codes: 0 the job runs now, 2 it runs after evictions, 3 it cannot run, 64 the input is invalid.",
)
def plan(
    job: Annotated[
        str, typer.Argument(help="The job: manifests of any workload in a file, a folder or `-`, or a gang in scenario syntax.")
    ],
    cluster: Annotated[str, CLUSTER] = "",
    policy: Annotated[Path | None, POLICY] = None,
    after_steps: Annotated[bool, AFTER_STEPS] = False,
    as_scheduler: Annotated[str, AS_SCHEDULER] = "",
    kubeconfig: Annotated[Path | None, KUBECONFIG] = None,
    context: Annotated[str, CONTEXT] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="The namespace of what names none; another than a manifest names is an error.")
    ] = "",
    minimum: Annotated[int | None, typer.Option("--min", min=1, help="So many pods must start together.")] = None,
    queue: Annotated[str, typer.Option(help="The queue, in place of the job's own.")] = "",
    priority: Annotated[str, typer.Option(metavar="CLASS|NUMBER", help="The priority, in place of the job's own.")] = "",
    pods: Annotated[str, typer.Option(metavar="PATH", help="Where a kind that is not known has its pod template.")] = "",
    replicas: Annotated[str, typer.Option(metavar="PATH", help="Where such a kind has the number of its pods.")] = "",
    history: Annotated[Path | None, HISTORY] = None,
    run_time: Annotated[str, RUN_TIME] = "",
    seconds: Annotated[float, SECONDS] = 2.0,
    output: Annotated[str, OUTPUT] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the full forecast as JSON.")] = False,
) -> None:
    """Predict whether a job would run, on which nodes, and which pods would be evicted for it. Nothing is changed."""
    from muster.cli.cluster_state import ClusterOptions
    from muster.cli.plan import plan as make_plan
    from muster.jobs.job_input import JobOptions
    from muster.jobs.workloads import WorkloadOptions

    json = is_json(output, json=json)
    looked_at = ClusterOptions(
        cluster,
        policy,
        after_steps,
        as_scheduler,
        kubeconfig,
        context,
        quiet=json,
        history=history,
        run_time=run_time,
        seconds=seconds,
    )
    workload = WorkloadOptions(namespace=namespace, minimum=minimum, queue=queue, priority=priority)
    options = JobOptions(workload, pods, replicas)
    end("plan", json=json, work=lambda: make_plan(job, looked_at, options, json=json), bad_input=USAGE_ERROR)


@app.command(cls=AnsweringCommand, short_help="Say why a gang waits, or why it runs where it does.", epilog=ANSWER_CODES)
def why(
    gang: Annotated[str, typer.Argument(help="The gang, with or without its namespace, or one of its pods.")],
    cluster: Annotated[str, CLUSTER] = "",
    at: Annotated[str, AT] = "",
    policy: Annotated[Path | None, POLICY] = None,
    as_scheduler: Annotated[str, AS_SCHEDULER] = "",
    kubeconfig: Annotated[Path | None, KUBECONFIG] = None,
    context: Annotated[str, CONTEXT] = "",
    namespace: Annotated[str, NAMESPACE] = "",
    history: Annotated[Path | None, HISTORY] = None,
    run_time: Annotated[str, RUN_TIME] = "",
    seconds: Annotated[float, SECONDS] = 2.0,
    output: Annotated[str, OUTPUT] = "",
    json: Annotated[bool, JSON] = False,
) -> None:
    """Say what a gang waits for, since when, what is before it and what it holds; or where it runs, and what it may lose."""
    from muster.cli.cluster_state import ClusterOptions
    from muster.cli.why import why as explain

    json = is_json(output, json=json)
    looked_at = ClusterOptions(
        cluster,
        policy,
        False,
        as_scheduler,
        kubeconfig,
        context,
        quiet=json,
        at=at,
        to_the_end=True,
        history=history,
        run_time=run_time,
        seconds=seconds,
    )
    end("why", json=json, work=lambda: explain(gang, looked_at, namespace=namespace, json=json), bad_input=USAGE_ERROR)


def _add_table(name: str, sentence: str) -> None:
    @app.command(name, cls=AnsweringCommand, short_help=sentence, help=sentence, epilog=ANSWER_CODES)
    def table(
        cluster: Annotated[str, CLUSTER] = "",
        at: Annotated[str, AT] = "",
        policy: Annotated[Path | None, POLICY] = None,
        as_scheduler: Annotated[str, AS_SCHEDULER] = "",
        kubeconfig: Annotated[Path | None, KUBECONFIG] = None,
        context: Annotated[str, CONTEXT] = "",
        namespace: Annotated[str, NAMESPACE] = "",
        queue: Annotated[str, typer.Option(help="Only gangs of this queue.")] = "",
        stage: Annotated[str, typer.Option(help="Only gangs of this stage, such as waiting.")] = "",
        everything: Annotated[bool, typer.Option("--all", "-A", help="All rows, of all namespaces.")] = False,
        watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again every few seconds, until interrupted.")] = False,
        output: Annotated[str, OUTPUT] = "",
        json: Annotated[bool, JSON] = False,
    ) -> None:
        from muster.cli import tables
        from muster.cli.cluster_state import ClusterOptions

        json = is_json(output, json=json)
        looked_at = ClusterOptions(cluster, policy, False, as_scheduler, kubeconfig, context, quiet=json, at=at, to_the_end=True)
        options = tables.TableOptions(namespace, queue, stage, everything, json, output == "wide")

        def show() -> int:
            code: int = getattr(tables, name)(looked_at, options)
            return code

        end(name, json=json, work=lambda: tables.watched(show) if watch else show(), bad_input=USAGE_ERROR)


_add_table("queues", "List the queues with what they use and deserve, and the gangs that wait in them.")
_add_table("gangs", "List the gangs, those that need attention first.")
_add_table("nodes", "List the nodes with what is free on them, those that are not ready first.")


@app.command(short_help="Show a cluster in the browser: a snapshot, a decision log or a scenario.", epilog=OTHER_CODES)
def view(
    file: Annotated[str, typer.Argument(help="A snapshot, a decision log, a scenario, or what `kubectl get -o json|yaml` prints.")],
    policy: Annotated[Path | None, POLICY] = None,
    as_scheduler: Annotated[str, AS_SCHEDULER] = "",
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="Serve the page here, to this machine only.")] = "127.0.0.1:0",
) -> None:
    """Serve the page of `muster run` about a file, to this machine only, until Ctrl-C."""
    from muster.cli.cluster_state import ClusterOptions
    from muster.cli.view import show_page

    looked_at = ClusterOptions(file, policy, scheduler=as_scheduler)
    end("view", work=lambda: show_page(looked_at, address))


@app.command(short_help="Save a cluster's state to a file, for plan and sim.", epilog=OTHER_CODES)
def snapshot(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Output file, such as cluster.json.gz.")],
    kubeconfig: Annotated[Path | None, KUBECONFIG] = None,
    context: Annotated[str, CONTEXT] = "",
    anonymous: Annotated[bool, typer.Option("--anonymous", help="Replace all names consistently.")] = False,
) -> None:
    """Save what the scheduler reads of a cluster, as input for `muster plan --cluster` and `muster sim`."""
    from muster.cli.snapshot import save

    end("snapshot", work=lambda: save(output, kubeconfig=kubeconfig, context=context, anonymous=anonymous))
