"""The commands and their options. Each command imports what it needs when it runs: `--help` must not wait for NumPy."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from muster import __version__
from muster.cli import BAD_INPUT, USAGE_ERROR
from muster.cli.errors import UserError, show_user_error

app = typer.Typer(
    name="muster",
    help="A gang-aware scheduler for Kubernetes: pods that belong together start together, or not at all.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_EXIT_CODES = "Exit codes: 0 success, 1 an expectation, invariant or target does not hold, 2 the input is invalid."
_SIM_CODES = "Exit codes: 0 success, 1 an expectation or invariant does not hold, 2 the input is invalid."
_REPLAY_CODES = "Exit codes: 0 identical, 1 a decision differs, 2 the input is invalid."
_BENCH_CODES = "Exit codes: 0 success, 1 a workload failed or, with --check, a target is missed, 2 the input is invalid."
_OTHER_CODES = "Exit codes: 0 success, 2 the input is invalid."


_POLICY = typer.Option(metavar="FILE", help="Use this policy file in place of the scenario's own.")
_KUBECONFIG = typer.Option(metavar="FILE", help="The kubeconfig; else KUBECONFIG, the pod's service account, or ~/.kube/config.")
_CLUSTER = typer.Option(
    "--cluster",
    "-c",
    metavar="FILE",
    help="A scenario (`file.yaml:12`), a snapshot, or what `kubectl get -o json|yaml` prints; else the kubeconfig's cluster.",
)
_AFTER_STEPS = typer.Option("--after-steps", help="Run the scenario's steps first; by default they are skipped.")
_AS_SCHEDULER = typer.Option(metavar="NAME", help="Look at the pods that this scheduler serves, such as volcano.")
_AT = typer.Option(metavar="TIME", help="When, in a decision log or a scenario: 14:05, or 1h19m after its beginning.")
_NAMESPACE = typer.Option("--namespace", "-n", help="The namespace.")
_JSON = typer.Option("--json", help="Print the result as JSON.")
_ANSWER_CODES = "Exit codes: 0 success, 64 the input is invalid."
_OUTPUT = typer.Option("--output", "-o", metavar="json|yaml|wide", help="The output format.")
_CONTEXT = typer.Option(help="The context in the kubeconfig.")
_RUN_TIME = typer.Option(metavar="DURATION", help="For how long pods run of which nobody knows, such as 4h: to say when it starts.")
_HISTORY = typer.Option(metavar="LOG", help="A decision log: pods run for as long as earlier ones of the same owner did.")
_SECONDS = typer.Option(help="Seconds at most to find out when it starts, and with which changes.")


_COLUMNS = typer.Option("--columns", metavar="FILE", help="A file that says which column of the table is what.")
_NODES = typer.Option(
    "--nodes", metavar="FILE|64x8", help="The cluster of a history: a table of nodes, or how many with how many GPUs."
)


_TRACES = (".csv", ".csv.gz", ".swf", ".swf.gz", ".jsonl", ".jsonl.gz")


class _AnsweringCommand(TyperCommand):
    """A command whose exit code is an answer: an invalid option must not look like one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if getattr(error, "exit_code", None) == BAD_INPUT:
                error.exit_code = USAGE_ERROR  # type: ignore[attr-defined]
            raise


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"muster {__version__}")
        raise typer.Exit()


@app.callback(epilog=_EXIT_CODES)
def muster(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an internal error.")] = False,
) -> None:
    """A gang-aware scheduler for Kubernetes: pods that belong together start together, or not at all."""


@app.command(short_help="Run scenarios on a simulated cluster in virtual time.", epilog=_SIM_CODES)
def sim(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Scenario files, folders of them, snapshots, or one history of jobs; `file.yaml:12` is the scenario there."
        ),
    ] = None,
    generate: Annotated[
        str | None,
        typer.Option(
            metavar="nodes=500,gangs=200,seed=7", help="Generate a scenario from a seed instead of reading files; also events=300."
        ),
    ] = None,
    policy: Annotated[Path | None, _POLICY] = None,
    decision_log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the decision log to this file, for `muster replay`.")
    ] = None,
    nodes: Annotated[str, _NODES] = "",
    columns: Annotated[Path | None, _COLUMNS] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a report to this file: one page that opens in any browser.")
    ] = None,
    timeline: Annotated[
        bool | None,
        typer.Option(
            "--timeline/--no-timeline", help="Print the whole timeline, or none of it; by default as much as fits one screen."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="List every gang, finished ones included.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print failures only.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the full report as JSON.")] = False,
) -> None:
    """Run scenarios on a simulated cluster in virtual time: hours take seconds, and the result is deterministic."""
    if files and len(files) == 1 and files[0].endswith(_TRACES):
        from muster.cli.compare import CompareOptions, compare_policies

        played = CompareOptions(Path(files[0]), None, [str(policy)] if policy else (), nodes, columns, json=json)
        _end("sim", json=json, work=lambda: compare_policies(played, command="sim"))
    from muster.cli.sim import SimOptions, simulate

    options = SimOptions(
        files=tuple(files or ()),
        generate=generate,
        policy=policy,
        decision_log=decision_log,
        html=html,
        json=json,
        quiet=quiet,
        timeline=timeline,
        all_gangs=everything,
    )
    _end("sim", json=json, work=lambda: simulate(options))


@app.command(short_help="Replay a decision log and verify every decision.", epilog=_REPLAY_CODES)
def replay(
    log: Annotated[Path, typer.Argument(help="A decision log, written by `muster sim --decision-log` or `muster run`.")],
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Decide with this policy file instead of the one in the log.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Replay a decision log and verify that every decision is identical, byte for byte."""
    from muster.cli.replay_command import replay_log

    _end("replay", json=json, work=lambda: replay_log(log, policy=policy, json=json))


@app.command(short_help="Show a cluster in the browser: a snapshot, a decision log or a scenario.", epilog=_OTHER_CODES)
def view(
    file: Annotated[str, typer.Argument(help="A snapshot, a decision log, a scenario, or what `kubectl get -o json|yaml` prints.")],
    policy: Annotated[Path | None, _POLICY] = None,
    as_scheduler: Annotated[str, _AS_SCHEDULER] = "",
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="Serve the page here, to this machine only.")] = "127.0.0.1:0",
) -> None:
    """Serve the page of `muster run` about a file, to this machine only, until Ctrl-C."""
    from muster.cli.cluster_state import ClusterOptions
    from muster.cli.view import show_page

    looked_at = ClusterOptions(file, policy, scheduler=as_scheduler)
    _end("view", work=lambda: show_page(looked_at, address))


@app.command(
    cls=_AnsweringCommand,
    short_help="Predict whether a job would run, and what it would evict.",
    epilog="Exit codes: 0 the job runs now, 2 it runs after evictions, 3 it cannot run, 64 the input is invalid.",
)
def plan(
    job: Annotated[
        str, typer.Argument(help="The job: manifests of any workload in a file, a folder or `-`, or a gang in scenario syntax.")
    ],
    cluster: Annotated[str, _CLUSTER] = "",
    policy: Annotated[Path | None, _POLICY] = None,
    after_steps: Annotated[bool, _AFTER_STEPS] = False,
    as_scheduler: Annotated[str, _AS_SCHEDULER] = "",
    kubeconfig: Annotated[Path | None, _KUBECONFIG] = None,
    context: Annotated[str, _CONTEXT] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="The namespace of what names none.")] = "",
    minimum: Annotated[int | None, typer.Option("--min", min=1, help="So many pods must start together.")] = None,
    queue: Annotated[str, typer.Option(help="The queue, in place of the job's own.")] = "",
    priority: Annotated[str, typer.Option(metavar="CLASS|NUMBER", help="The priority, in place of the job's own.")] = "",
    pods: Annotated[str, typer.Option(metavar="PATH", help="Where a kind that is not known has its pod template.")] = "",
    replicas: Annotated[str, typer.Option(metavar="PATH", help="Where such a kind has the number of its pods.")] = "spec.replicas",
    history: Annotated[Path | None, _HISTORY] = None,
    run_time: Annotated[str, _RUN_TIME] = "",
    seconds: Annotated[float, _SECONDS] = 2.0,
    output: Annotated[str, _OUTPUT] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the full forecast as JSON.")] = False,
) -> None:
    """Predict whether a job would run, on which nodes, and which pods would be evicted for it. Nothing is changed."""
    from muster.cli.cluster_state import ClusterOptions
    from muster.cli.plan import plan as make_plan
    from muster.jobs.job_input import JobOptions
    from muster.jobs.workloads import WorkloadOptions

    json = _is_json(output, json=json)
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
    _end("plan", json=json, work=lambda: make_plan(job, looked_at, options, json=json), bad_input=USAGE_ERROR)


@app.command(cls=_AnsweringCommand, short_help="Say why a gang waits, or why it runs where it does.", epilog=_ANSWER_CODES)
def why(
    gang: Annotated[str, typer.Argument(help="The gang, with or without its namespace, or one of its pods.")],
    cluster: Annotated[str, _CLUSTER] = "",
    at: Annotated[str, _AT] = "",
    policy: Annotated[Path | None, _POLICY] = None,
    as_scheduler: Annotated[str, _AS_SCHEDULER] = "",
    kubeconfig: Annotated[Path | None, _KUBECONFIG] = None,
    context: Annotated[str, _CONTEXT] = "",
    namespace: Annotated[str, _NAMESPACE] = "",
    history: Annotated[Path | None, _HISTORY] = None,
    run_time: Annotated[str, _RUN_TIME] = "",
    seconds: Annotated[float, _SECONDS] = 2.0,
    output: Annotated[str, _OUTPUT] = "",
    json: Annotated[bool, _JSON] = False,
) -> None:
    """Say what a gang waits for, since when, what is before it and what it holds; or where it runs, and what it may lose."""
    from muster.cli.cluster_state import ClusterOptions
    from muster.cli.why import why as explain

    json = _is_json(output, json=json)
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
    _end("why", json=json, work=lambda: explain(gang, looked_at, namespace=namespace, json=json), bad_input=USAGE_ERROR)


def _add_table(name: str, sentence: str) -> None:
    @app.command(name, cls=_AnsweringCommand, short_help=sentence, help=sentence, epilog=_ANSWER_CODES)
    def table(
        cluster: Annotated[str, _CLUSTER] = "",
        at: Annotated[str, _AT] = "",
        policy: Annotated[Path | None, _POLICY] = None,
        as_scheduler: Annotated[str, _AS_SCHEDULER] = "",
        kubeconfig: Annotated[Path | None, _KUBECONFIG] = None,
        context: Annotated[str, _CONTEXT] = "",
        namespace: Annotated[str, _NAMESPACE] = "",
        queue: Annotated[str, typer.Option(help="Only gangs of this queue.")] = "",
        stage: Annotated[str, typer.Option(help="Only gangs of this stage, such as waiting.")] = "",
        everything: Annotated[bool, typer.Option("--all", "-A", help="All rows, of all namespaces.")] = False,
        watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again every few seconds, until interrupted.")] = False,
        output: Annotated[str, _OUTPUT] = "",
        json: Annotated[bool, _JSON] = False,
    ) -> None:
        from muster.cli import tables
        from muster.cli.cluster_state import ClusterOptions

        json = _is_json(output, json=json)
        looked_at = ClusterOptions(cluster, policy, False, as_scheduler, kubeconfig, context, quiet=json, at=at, to_the_end=True)
        options = tables.TableOptions(namespace, queue, stage, everything, json, output == "wide")

        def show() -> int:
            code: int = getattr(tables, name)(looked_at, options)
            return code

        _end(name, json=json, work=lambda: tables.watched(show) if watch else show(), bad_input=USAGE_ERROR)


_add_table("queues", "List the queues with what they use and deserve, and the gangs that wait in them.")
_add_table("gangs", "List the gangs, those that need attention first.")
_add_table("nodes", "List the nodes with what is free on them, those that are not ready first.")


@app.command(short_help="Validate policy files and summarise them.", epilog=_OTHER_CODES)
def check(
    files: Annotated[list[Path] | None, typer.Argument(help="Policy files; without any, the default policy is shown.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Validate policy files and summarise each: its actions, its plugins and their options."""
    from muster.cli.check import check as check_files

    _end("check", json=json, work=lambda: check_files(list(files or ()), json=json))


@app.command(short_help="Measure throughput and latency against the targets.", epilog=_BENCH_CODES)
def bench(
    groups: Annotated[list[str] | None, typer.Argument(help="Groups of workloads; by default all that need no API server.")] = None,
    only_list: Annotated[bool, typer.Option("--list", help="List the workloads without running them.")] = False,
    check_targets: Annotated[bool, typer.Option("--check", help="Fail where a target is missed by more than 20 %.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the measurements as JSON.")] = False,
    row: Annotated[str, typer.Option(metavar="ROW", help="Only this kind of random clusters.", show_default=False)] = "",
    seeds: Annotated[str, typer.Option(metavar="FROM-TO", help="Only random clusters of these seeds.", show_default=False)] = "",
    show: Annotated[
        str, typer.Option(metavar="ROW:SEED", help="Print a random cluster as a scenario, with what was wrong.", show_default=False)
    ] = "",
) -> None:
    """Measure scheduling throughput and latency on this machine, against the targets."""
    from muster.cli.bench_command import bench as run_bench

    def work() -> int:
        return run_bench(groups or (), json=json, check=check_targets, only_list=only_list, row=row, seeds=seeds, show=show)

    _end("bench", json=json, work=work)


@app.command(short_help="Demonstrate Muster, in the simulator or on a real API server.", epilog=_SIM_CODES)
def demo(
    kube: Annotated[
        bool, typer.Option("--kube", help="Start a local etcd and kube-apiserver, and schedule on them with `muster run`.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="Duration with --kube, in seconds.")] = 60.0,
) -> None:
    """Demonstrate Muster: two hours in the simulator, or with --kube a minute on a real API server."""
    from muster.cli.demo import demo_in_simulator, demo_on_kube

    _end("demo", work=lambda: demo_on_kube(seconds) if kube else demo_in_simulator())


@app.command(short_help="Convert a Volcano scheduler configuration to a policy.", epilog=_OTHER_CODES)
def convert(
    file: Annotated[Path, typer.Argument(help="volcano-scheduler.conf, or a ConfigMap, a List or Helm values with it.")],
    strict: Annotated[bool, typer.Option("--strict", help="Fail with code 1 where a decision changes.")] = False,
) -> None:
    """Convert a Volcano scheduler configuration to a policy file. Differences are reported on standard error."""
    from muster.cli.convert import convert_file

    _end("convert", work=lambda: convert_file(file, strict=strict))


@app.command(
    epilog="Exit codes: 0 stopped by a signal, 2 the input is invalid, 3 the lease was lost, "
    "4 Plan and History are not installed, 70 an internal error."
)
def run(
    kubeconfig: Annotated[Path | None, _KUBECONFIG] = None,
    context: Annotated[str, _CONTEXT] = "",
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="The policy file; by default the default policy.")] = None,
    bind_address: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="Serve /healthz, /readyz, /metrics and, to this machine, the page here; empty disables all."
        ),
    ] = "127.0.0.1:10259",
    leader_election: Annotated[
        bool,
        typer.Option("--leader-election/--no-leader-election", help="Hold a Lease, so that one of several replicas is active."),
    ] = True,
    lease_namespace: Annotated[str, typer.Option(help="Namespace of the Lease; else the pod's, or kube-system.")] = "",
    lease_name: Annotated[str, typer.Option(help="Name of the Lease.")] = "muster",
    namespace: Annotated[str, typer.Option(help="Namespace of Plans and Histories; else the pod's, or kube-system.")] = "",
    lease_duration: Annotated[
        float, typer.Option(help="Seconds without renewal after which another replica may take the Lease.")
    ] = 15.0,
    renew_deadline: Annotated[float, typer.Option(help="Seconds after which a leader that cannot renew the Lease stops.")] = 10.0,
    retry_period: Annotated[float, typer.Option(help="Seconds between two renewals.")] = 2.0,
    decision_log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every event and decision to this file, for `muster replay`.")
    ] = None,
    log_size: Annotated[int, typer.Option(help="Rotate the decision log at this size, in MiB.", min=1)] = 256,
    log_files: Annotated[int, typer.Option(help="Files of the decision log to keep.", min=1)] = 5,
    log_format: Annotated[str, typer.Option(metavar="json|text", help="Format of log lines.")] = "json",
    queue_metrics: Annotated[
        bool, typer.Option("--queue-metrics", help="Serve metrics with names of queues to other machines, too.")
    ] = False,
    api_address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Serve the API and the page to other machines here, for tokens of the cluster.")
    ] = "",
    api_certificate: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate of --api-address, in PEM.")] = None,
    api_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key.")] = None,
) -> None:
    """Schedule a real cluster until SIGTERM or SIGINT."""
    from muster.cli.run import run_scheduler, service_settings

    def work() -> int:
        settings = service_settings(
            policy=policy,
            bind_address=bind_address,
            lease=(lease_namespace, lease_name) if leader_election else None,
            namespace=namespace,
            lease_times=(lease_duration, renew_deadline, retry_period),
            decision_log=decision_log,
            log_size=log_size,
            log_files=log_files,
            queue_metrics=queue_metrics,
            api=(api_address, api_certificate, api_key),
        )
        return run_scheduler(settings, kubeconfig=kubeconfig, context=context, log_format=log_format)

    _end("run", work=work)


@app.command(short_help="Print or install the CustomResourceDefinitions.", epilog=_OTHER_CODES)
def crds(
    install: Annotated[bool, typer.Option("--install", help="Create those that are missing in the cluster.")] = False,
    kubeconfig: Annotated[Path | None, _KUBECONFIG] = None,
    context: Annotated[str, _CONTEXT] = "",
) -> None:
    """Print the CustomResourceDefinitions that Muster reads, or install the missing ones."""
    from muster.cli.crds import install_missing, show

    _end("crds", work=lambda: install_missing(kubeconfig, context) if install else show())


@app.command(short_help="Save a cluster's state to a file, for plan and sim.", epilog=_OTHER_CODES)
def snapshot(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Output file, such as cluster.json.gz.")],
    kubeconfig: Annotated[Path | None, _KUBECONFIG] = None,
    context: Annotated[str, _CONTEXT] = "",
    anonymous: Annotated[bool, typer.Option("--anonymous", help="Replace all names consistently.")] = False,
) -> None:
    """Save what the scheduler reads of a cluster, as input for `muster plan --cluster` and `muster sim`."""
    from muster.cli.snapshot import save

    _end("snapshot", work=lambda: save(output, kubeconfig=kubeconfig, context=context, anonymous=anonymous))


@app.command(short_help="Compare policies on a history of jobs.", epilog=_OTHER_CODES)
def compare(
    trace: Annotated[Path | None, typer.Argument(help="A history of jobs, in any format that docs/traces.md names.")] = None,
    policies: Annotated[
        list[str] | None, typer.Option("--policy", "-p", metavar="FILE", help="A policy file, or `default`; several times.")
    ] = None,
    nodes: Annotated[str, _NODES] = "",
    columns: Annotated[Path | None, _COLUMNS] = None,
    generate: Annotated[
        str | None, typer.Option(metavar="gangs=2000,days=14,load=110", help="Make a history in place of reading one.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="So many histories: the jobs of this one in other orders.", min=1)] = 1,
    fill: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", help="How full the cluster gets with jobs that ask for so much and never end.", min=1),
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write how each job fared to this table.")] = None,
    json: Annotated[bool, _JSON] = False,
) -> None:
    """Play a history of jobs with several policies: waits, work that counted and that was lost, and how sure the difference is."""
    from muster.cli.compare import CompareOptions, compare_policies

    options = CompareOptions(trace, generate, tuple(policies or ()), nodes, columns, seeds, fill, json, csv)
    _end("compare", json=json, work=lambda: compare_policies(options))


trace_app = typer.Typer(
    name="trace", help="Histories of clusters: jobs with their arrivals and run times.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(trace_app)


@trace_app.command("convert", short_help="Convert a history of jobs to Muster's own table.", epilog=_OTHER_CODES)
def convert_trace(
    file: Annotated[
        Path, typer.Argument(help="Jobs: CSV of openb, Philly, Helios, Acme or Muster, `.swf`, or a decision log (`.jsonl`).")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Output file; else standard output.")
    ] = None,
    nodes_output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the nodes here, where the history names them.")
    ] = None,
    columns: Annotated[Path | None, _COLUMNS] = None,
) -> None:
    """Convert a history of jobs to Muster's own table, which is described in docs/traces.md."""
    from muster.cli.trace_command import convert_trace as convert_file

    _end("trace", work=lambda: convert_file(file, columns=columns, output=output, nodes_output=nodes_output))


def _is_json(output: str, *, json: bool) -> bool:
    from muster.cli.json_output import use_yaml

    if output not in ("", "json", "yaml", "wide"):
        show_user_error(UserError(f"--output: {output!r} is none of json, yaml, wide"))
        raise typer.Exit(USAGE_ERROR)
    use_yaml(output == "yaml")
    return json or output in ("json", "yaml")


def _end(command: str, *, work: Callable[[], int], json: bool = False, bad_input: int = BAD_INPUT) -> NoReturn:
    """Run the command and exit with its code. Invalid input is reported on the error stream, and with `--json` as JSON, too."""
    from muster.yaml_positions import InputError

    try:
        code = work()
        sys.stdout.flush()
        raise typer.Exit(code)
    except BrokenPipeError:
        # The reader of our output has closed it, as `head` does: Typer would call that a failure, and so would the last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit() from None
    except (UserError, InputError) as error:
        if json:
            from muster.cli.json_output import errors_document, write_json

            write_json(command, ok=False, errors=errors_document(error))
        show_user_error(error)
        raise typer.Exit(bad_input) from None
