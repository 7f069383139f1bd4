"""The commands and their options. Each command imports what it needs when it runs: `--help` must not wait for NumPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from muster import __version__
from muster.cli.errors import UserError
from muster.cli.usage_errors import UsageErrorCommand

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
            help="Scenario files, folders of them, or snapshots; `file.yaml:12` selects the scenario at that line.",
            show_default=False,
        ),
    ] = None,
    generate: Annotated[
        str | None,
        typer.Option(
            metavar="nodes=500,gangs=200,seed=7",
            help="Generate a scenario from a seed instead of reading files; also events=300.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Use this policy file in place of the scenarios' own.", show_default=False)
    ] = None,
    decision_log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the decision log to this file, for `muster replay`.", show_default=False),
    ] = None,
    timeline: Annotated[
        bool | None,
        typer.Option(
            "--timeline/--no-timeline",
            help="Print the whole timeline, or none of it; by default as much as fits one screen.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="List every gang, finished ones included.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print failures only.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the full report as JSON.")] = False,
) -> None:
    """Run scenarios on a simulated cluster in virtual time: hours take seconds, and the result is deterministic."""
    from muster.cli.sim import SimOptions, simulate

    options = SimOptions(
        files=tuple(files or ()),
        generate=generate,
        policy=policy,
        decision_log=decision_log,
        json=json,
        quiet=quiet,
        timeline=timeline,
        all_gangs=everything,
    )
    _end("sim", json=json, work=lambda: simulate(options))


@app.command(short_help="Replay a decision log and verify every decision.", epilog=_REPLAY_CODES)
def replay(
    log: Annotated[
        Path, typer.Argument(help="A decision log, written by `muster sim --decision-log` or `muster run`.", show_default=False)
    ],
    policy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Decide with this policy file instead of the one in the log.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Replay a decision log and verify that every decision is identical, byte for byte."""
    from muster.cli.replay_command import replay_log

    _end("replay", json=json, work=lambda: replay_log(log, policy=policy, json=json))


@app.command(
    cls=UsageErrorCommand,
    short_help="Predict whether a job would run, and what it would evict.",
    epilog="Exit codes: 0 the job runs now, 2 it runs after evictions, 3 it cannot run, 64 the input is invalid.",
)
def plan(
    job: Annotated[Path, typer.Argument(help="The job: Kubernetes manifests, or a gang in scenario syntax.", show_default=False)],
    cluster: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="The cluster: a scenario (`file.yaml:12`), a snapshot, or the output of `kubectl get -o json`.",
            show_default=False,
        ),
    ],
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Use this policy file in place of the scenario's own.", show_default=False)
    ] = None,
    after_steps: Annotated[
        bool, typer.Option("--after-steps", help="Run the scenario's steps first; by default they are skipped.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the full forecast as JSON.")] = False,
) -> None:
    """Predict whether a job would run, on which nodes, and which pods would be evicted for it. Nothing is changed."""
    from muster.cli.plan import PlanOptions
    from muster.cli.plan import plan as make_plan

    raise typer.Exit(make_plan(PlanOptions(job=job, cluster=cluster, policy=policy, after_steps=after_steps, json=json)))


@app.command(short_help="Validate policy files and summarise them.", epilog=_OTHER_CODES)
def check(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Policy files; without any, the default policy is shown.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Validate policy files and summarise each: its actions, its plugins and their options."""
    from muster.cli.check import check as check_files

    _end("check", json=json, work=lambda: check_files(list(files or ()), json=json))


@app.command(short_help="Measure throughput and latency against the targets.", epilog=_BENCH_CODES)
def bench(
    groups: Annotated[
        list[str] | None, typer.Argument(help="Groups of workloads; by default all that need no API server.", show_default=False)
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="List the workloads without running them.")] = False,
    check_targets: Annotated[bool, typer.Option("--check", help="Fail where a target is missed by more than 20 %.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the measurements as JSON.")] = False,
) -> None:
    """Measure scheduling throughput and latency on this machine, against the targets."""
    from muster.cli.bench_command import bench as run_bench

    _end("bench", json=json, work=lambda: run_bench(groups or (), json=json, check=check_targets, only_list=only_list))


@app.command(short_help="Demonstrate Muster, in the simulator or on a real API server.", epilog=_SIM_CODES)
def demo(
    kube: Annotated[
        bool, typer.Option("--kube", help="Start a local etcd and kube-apiserver, and schedule on them with `muster run`.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="Duration with --kube, in seconds.")] = 60.0,
) -> None:
    """Demonstrate Muster: two hours in the simulator, or with --kube a minute on a real API server."""
    from muster.cli.demo import DemoOptions
    from muster.cli.demo import demo as run_demo

    raise typer.Exit(run_demo(DemoOptions(kube=kube, seconds=seconds)))


@app.command(short_help="Convert a Volcano scheduler configuration to a policy.", epilog=_OTHER_CODES)
def convert(
    file: Annotated[Path, typer.Argument(help="volcano-scheduler.conf, or the ConfigMap that contains it.", show_default=False)],
) -> None:
    """Convert a Volcano scheduler configuration to a policy file. Differences are reported on standard error."""
    from muster.cli.convert import convert_file

    raise typer.Exit(convert_file(file))


_KUBECONFIG = typer.Option(
    metavar="FILE", help="The kubeconfig; else KUBECONFIG, the pod's service account, or ~/.kube/config.", show_default=False
)
_CONTEXT = typer.Option(help="The context in the kubeconfig.", show_default=False)


@app.command(epilog="Exit codes: 0 stopped by a signal, 2 the input is invalid, 3 the lease was lost, 70 an internal error.")
def run(
    kubeconfig: Annotated[Path | None, _KUBECONFIG] = None,
    context: Annotated[str, _CONTEXT] = "",
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The policy file; by default the default policy.", show_default=False)
    ] = None,
    bind_address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Serve /healthz, /readyz and /metrics here; empty disables them.")
    ] = "127.0.0.1:10259",
    leader_election: Annotated[
        bool,
        typer.Option("--leader-election/--no-leader-election", help="Hold a Lease, so that one of several replicas is active."),
    ] = True,
    lease_namespace: Annotated[
        str, typer.Option(help="Namespace of the Lease; else the pod's, or kube-system.", show_default=False)
    ] = "",
    lease_name: Annotated[str, typer.Option(help="Name of the Lease.")] = "muster",
    lease_duration: Annotated[
        float, typer.Option(help="Seconds without renewal after which another replica may take the Lease.")
    ] = 15.0,
    renew_deadline: Annotated[float, typer.Option(help="Seconds after which a leader that cannot renew the Lease stops.")] = 10.0,
    retry_period: Annotated[float, typer.Option(help="Seconds between two renewals.")] = 2.0,
    decision_log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write every event and decision to this file, for `muster replay`.", show_default=False),
    ] = None,
    log_size: Annotated[int, typer.Option(help="Rotate the decision log at this size, in MiB.", min=1)] = 256,
    log_files: Annotated[int, typer.Option(help="Files of the decision log to keep.", min=1)] = 5,
    log_format: Annotated[str, typer.Option(metavar="json|text", help="Format of log lines.")] = "json",
    qps: Annotated[
        float | None, typer.Option(help="API requests per second, at most; by default unlimited.", show_default=False)
    ] = None,
) -> None:
    """Schedule a real cluster until SIGTERM or SIGINT."""
    from muster.cli.run import RunOptions, run_scheduler

    options = RunOptions(
        kubeconfig=kubeconfig,
        context=context,
        policy=policy,
        bind_address=bind_address,
        lease=(lease_namespace, lease_name) if leader_election else None,
        lease_times=(lease_duration, renew_deadline, retry_period),
        decision_log=decision_log,
        log_size=log_size,
        log_files=log_files,
        log_format=log_format,
        qps=qps,
    )
    raise typer.Exit(run_scheduler(options))


@app.command(short_help="Print or install the CustomResourceDefinitions.", epilog=_OTHER_CODES)
def crds(
    install: Annotated[bool, typer.Option("--install", help="Create those that are missing in the cluster.")] = False,
    kubeconfig: Annotated[Path | None, _KUBECONFIG] = None,
    context: Annotated[str, _CONTEXT] = "",
) -> None:
    """Print the CustomResourceDefinitions that Muster reads, or install the missing ones."""
    from muster.cli.crds import install_missing, show

    raise typer.Exit(install_missing(kubeconfig, context) if install else show())


@app.command(short_help="Save a cluster's state to a file, for plan and sim.", epilog=_OTHER_CODES)
def snapshot(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Output file, such as cluster.json.gz.", show_default=False)
    ],
    kubeconfig: Annotated[Path | None, _KUBECONFIG] = None,
    context: Annotated[str, _CONTEXT] = "",
    anonymous: Annotated[bool, typer.Option("--anonymous", help="Replace all names consistently.")] = False,
) -> None:
    """Save what the scheduler reads of a cluster, as input for `muster plan --cluster` and `muster sim`."""
    from muster.cli.snapshot import save

    raise typer.Exit(save(output, kubeconfig=kubeconfig, context=context, anonymous=anonymous))


def _end(command: str, *, json: bool, work: Callable[[], int]) -> NoReturn:
    """Run the command and exit with its code. With `--json`, invalid input is reported as JSON, too."""
    try:
        raise typer.Exit(work())
    except UserError as error:
        if json:
            from muster.cli.json_output import errors_document, write_json

            write_json(command, ok=False, errors=errors_document(error))
        raise
