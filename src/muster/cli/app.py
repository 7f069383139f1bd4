"""The commands and their options. Each command fetches what it needs when it runs: help must answer at once."""

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

_EPILOG_CODES = "Exit codes: 0 all is well, 1 an expectation, law or bar does not hold, 2 the input cannot be used."


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"muster {__version__}")
        raise typer.Exit()


@app.callback(epilog=_EPILOG_CODES)
def muster(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback where Muster itself is at fault.")] = False,
) -> None:
    """A gang-aware scheduler for Kubernetes: pods that belong together start together, or not at all."""


@app.command(epilog=_EPILOG_CODES)
def sim(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Scenarios, folders of them, or snapshots; `file.yaml:12` is the one scenario that stands there.",
            show_default=False,
        ),
    ] = None,
    generate: Annotated[
        str | None,
        typer.Option(
            metavar="nodes=500,gangs=200,seed=7", help="Make a world out of a seed instead; also events=300.", show_default=False
        ),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="Use this policy file, whatever the scenarios say.", show_default=False)
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write the decision log here; `muster replay` runs it again.", show_default=False)
    ] = None,
    timeline: Annotated[
        bool | None,
        typer.Option(
            "--story/--no-story", help="Tell all that happened, or nothing of it; else as much as fits.", show_default=False
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="List every gang, also those that are done.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only what does not hold.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Everything, for machines.")] = False,
) -> None:
    """Run scenarios on a simulated cluster: hours pass in seconds, and the same file gives the same result every time."""
    from muster.cli.sim import SimOptions as Wishes
    from muster.cli.sim import simulate

    options = Wishes(
        files=tuple(files or ()),
        generate=generate,
        policy=policy,
        trace=trace,
        json=json,
        quiet=quiet,
        timeline=timeline,
        all_gangs=everything,
    )
    _end("sim", json=json, work=lambda: simulate(options))


@app.command(epilog=_EPILOG_CODES)
def replay(
    log: Annotated[Path, typer.Argument(help="A decision log, as `muster sim --trace` writes it.", show_default=False)],
    policy: Annotated[
        Path | None, typer.Option(help="Decide with this policy file instead of the one in the log.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The result for machines.")] = False,
) -> None:
    """Run a decision log again and prove that every decision is the same, byte for byte."""
    from muster.cli.replay_command import replay_log

    _end("replay", json=json, work=lambda: replay_log(log, policy=policy, json=json))


@app.command(
    cls=UsageErrorCommand,
    epilog="Exit codes: 0 it runs now, 2 it runs after evictions, 3 it cannot run, 64 the input cannot be used.",
)
def plan(
    job: Annotated[
        Path, typer.Argument(help="The job: Kubernetes manifests, or a gang as scenarios write it.", show_default=False)
    ],
    cluster: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="The cluster: a scenario (`file.yaml:12`), a snapshot, or objects from kubectl.",
            show_default=False,
        ),
    ],
    policy: Annotated[
        Path | None, typer.Option(help="Decide with this policy file, whatever the scenario says.", show_default=False)
    ] = None,
    after_steps: Annotated[
        bool, typer.Option("--after-steps", help="Run the scenario to its end first; else its steps are left out.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Everything, for machines.")] = False,
) -> None:
    """Say whether a job would run, where, and who would have to leave; nothing is done."""
    from muster.cli.plan import PlanOptions as Wishes
    from muster.cli.plan import plan as make_plan

    raise typer.Exit(make_plan(Wishes(job=job, cluster=cluster, policy=policy, after_steps=after_steps, json=json)))


@app.command(epilog=_EPILOG_CODES)
def check(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Policy files; without any the default policy is shown.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The result for machines.")] = False,
) -> None:
    """Check policy files, and say on one screen what each of them does."""
    from muster.cli.check import check as check_files

    _end("check", json=json, work=lambda: check_files(list(files or ()), json=json))


@app.command(epilog=_EPILOG_CODES)
def bench(
    groups: Annotated[
        list[str] | None, typer.Argument(help="Groups of workloads; all of them if none.", show_default=False)
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="List the workloads without running them.")] = False,
    check_targets: Annotated[bool, typer.Option("--check", help="Fail where a bar is missed by more than 20 %.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The figures for machines.")] = False,
) -> None:
    """Measure how fast Muster decides on this machine, against the bars that it must clear."""
    from muster.cli.bench_command import bench as run_bench

    _end("bench", json=json, work=lambda: run_bench(groups or (), json=json, check=check_targets, only_list=only_list))


@app.command(epilog=_EPILOG_CODES)
def demo(
    kube: Annotated[
        bool, typer.Option("--kube", help="On a real etcd and kube-apiserver of its own, with a real `muster run`.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="How long the real one takes.")] = 60.0,
) -> None:
    """Show what Muster does: two hours in the simulator, or a minute on a real API server."""
    from muster.cli.demo import DemoOptions as Wishes
    from muster.cli.demo import demo as perform

    raise typer.Exit(perform(Wishes(kube=kube, seconds=seconds)))


@app.command(epilog=_EPILOG_CODES)
def convert(
    file: Annotated[
        Path, typer.Argument(help="Volcano's volcano-scheduler.conf, or the ConfigMap that holds it.", show_default=False)
    ],
) -> None:
    """Print a policy that does what Volcano's configuration says; what it cannot do is told on the error stream."""
    from muster.cli.convert import convert_file

    raise typer.Exit(convert_file(file))


_KUBECONFIG = typer.Option(
    metavar="FILE", help="How to reach the cluster; else KUBECONFIG, the pod's own account, or ~/.kube/config.", show_default=False
)
_CONTEXT = typer.Option(help="Which context of the kubeconfig.", show_default=False)


@app.command(epilog="Exit codes: 0 asked to stop, 2 the input cannot be used, 3 the lease is lost, 70 a bug in Muster.")
def run(
    kubeconfig: Annotated[Path | None, _KUBECONFIG] = None,
    context: Annotated[str, _CONTEXT] = "",
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The policy file; else the default policy.", show_default=False)
    ] = None,
    bind_address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where /healthz, /readyz and /metrics are; empty: nowhere.")
    ] = "127.0.0.1:10259",
    leader_election: Annotated[
        bool, typer.Option("--leader-election/--no-leader-election", help="Whether another scheduler may be running.")
    ] = True,
    lease_namespace: Annotated[
        str, typer.Option(help="Namespace of the lease; else that of the pod, or kube-system.", show_default=False)
    ] = "",
    lease_name: Annotated[str, typer.Option(help="Name of the lease.")] = "muster",
    lease_duration: Annotated[float, typer.Option(help="Seconds after which another may take a lease that stands still.")] = 15.0,
    renew_deadline: Annotated[float, typer.Option(help="Seconds after which a lease that cannot be renewed is given up.")] = 10.0,
    retry_period: Annotated[float, typer.Option(help="Seconds between two renewals.")] = 2.0,
    decision_log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write every event and decision here, for `muster replay`.", show_default=False),
    ] = None,
    log_size: Annotated[int, typer.Option(help="MiB after which a new file of the decision log is begun.", min=1)] = 256,
    log_files: Annotated[int, typer.Option(help="How many files of the decision log are kept.", min=1)] = 5,
    log_format: Annotated[str, typer.Option(metavar="json|text", help="How log lines are written.")] = "json",
    qps: Annotated[
        float | None, typer.Option(help="At most so many requests in a second; without it the server says.", show_default=False)
    ] = None,
) -> None:
    """Schedule a real cluster until told to stop."""
    from muster.cli.run import RunOptions as Wishes
    from muster.cli.run import run_scheduler

    options = Wishes(
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


@app.command(epilog=_EPILOG_CODES)
def crds(
    install: Annotated[bool, typer.Option("--install", help="Create those that the cluster does not have.")] = False,
    kubeconfig: Annotated[Path | None, _KUBECONFIG] = None,
    context: Annotated[str, _CONTEXT] = "",
) -> None:
    """Print the definitions of the custom objects that Muster reads, or install those that are absent."""
    from muster.cli.crds import install_missing, show

    raise typer.Exit(install_missing(kubeconfig, context) if install else show())


@app.command(epilog=_EPILOG_CODES)
def snapshot(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where to, such as cluster.json.gz.", show_default=False)
    ],
    kubeconfig: Annotated[Path | None, _KUBECONFIG] = None,
    context: Annotated[str, _CONTEXT] = "",
    anonymous: Annotated[bool, typer.Option("--anonymous", help="Replace all names, the same one by the same word.")] = False,
) -> None:
    """Save what the scheduler sees of a cluster; `muster plan --cluster` and `muster sim` take it as input."""
    from muster.cli.snapshot import save

    raise typer.Exit(save(output, kubeconfig=kubeconfig, context=context, anonymous=anonymous))


def _end(command: str, *, json: bool, work: Callable[[], int]) -> NoReturn:
    """Do it and leave with its exit code. A machine that asked for JSON gets it also where the input is wrong."""
    try:
        raise typer.Exit(work())
    except UserError as error:
        if json:
            from muster.cli.json_output import errors_document, write_json

            write_json(command, ok=False, errors=errors_document(error))
        raise
