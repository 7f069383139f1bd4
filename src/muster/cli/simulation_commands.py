"""Commands in virtual time, and measurements: `sim`, `replay`, `compare`, `trace`, `bench`, `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from muster.cli.command_options import (
    BENCH_CODES,
    COLUMNS,
    JSON,
    NODES,
    OTHER_CODES,
    POLICY,
    REPLAY_CODES,
    SIM_CODES,
    end,
    is_history,
)

app = typer.Typer()


@app.command(short_help="Run scenarios on a simulated cluster in virtual time.", epilog=SIM_CODES)
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
    policy: Annotated[Path | None, POLICY] = None,
    decision_log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the decision log to this file, for `muster replay`.")
    ] = None,
    nodes: Annotated[str, NODES] = "",
    columns: Annotated[Path | None, COLUMNS] = None,
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
    if files and len(files) == 1 and is_history(files[0]):
        from muster.cli.compare import CompareOptions, compare_policies

        played = CompareOptions(Path(files[0]), None, [str(policy)] if policy else (), nodes, columns, json=json, html=html)
        end("sim", json=json, work=lambda: compare_policies(played, command="sim"))
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
    end("sim", json=json, work=lambda: simulate(options))


@app.command(short_help="Replay a decision log and verify every decision.", epilog=REPLAY_CODES)
def replay(
    log: Annotated[Path, typer.Argument(help="A decision log, written by `muster sim --decision-log` or `muster run`.")],
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Decide with this policy file instead of the one in the log.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Replay a decision log and verify that every decision is identical, byte for byte. With --policy its jobs are then played
    again with both policies, and compared."""
    from muster.cli.replay_command import replay_log

    end("replay", json=json, work=lambda: replay_log(log, policy=policy, json=json))


@app.command(short_help="Compare policies on a history of jobs.", epilog=OTHER_CODES)
def compare(
    trace: Annotated[Path | None, typer.Argument(help="A history of jobs, in any format that docs/traces.md names.")] = None,
    policies: Annotated[
        list[str] | None, typer.Option("--policy", "-p", metavar="FILE", help="A policy file, or `default`; several times.")
    ] = None,
    nodes: Annotated[str, NODES] = "",
    columns: Annotated[Path | None, COLUMNS] = None,
    generate: Annotated[
        str | None, typer.Option(metavar="gangs=2000,days=14,load=110", help="Make a history in place of reading one.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="So many histories: the jobs of this one in other orders.", min=1)] = 1,
    fill: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", help="How full the cluster gets with jobs that ask for so much and never end.", min=1),
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write how each job fared, and why, to this table.")] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every figure of every policy and seed to this table.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report with plots over time to this file.")] = None,
    processes: Annotated[int, typer.Option(help="Play in so many processes; by default one for each CPU.", min=0)] = 0,
    dask: Annotated[str, typer.Option(metavar="ADDRESS", help="Play on the Dask cluster with this scheduler.")] = "",
    results: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep each result here, and go on from those that are here.")
    ] = None,
    json: Annotated[bool, JSON] = False,
) -> None:
    """Play a history of jobs with several policies: waits, work that counted and that was lost, and how sure the difference is."""
    from muster.cli.compare import CompareOptions, compare_policies

    options = CompareOptions(
        trace,
        generate,
        tuple(policies or ()),
        nodes,
        columns,
        seeds,
        fill,
        json,
        csv,
        figures=figures,
        html=html,
        processes=processes,
        dask=dask,
        results=results,
    )
    end("compare", json=json, work=lambda: compare_policies(options))


trace_app = typer.Typer(
    name="trace", help="Histories of clusters: jobs with their arrivals and run times.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(trace_app)


@trace_app.command("convert", short_help="Convert a history of jobs to Muster's own table.", epilog=OTHER_CODES)
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
    columns: Annotated[Path | None, COLUMNS] = None,
) -> None:
    """Convert a history of jobs to Muster's own table, which is described in docs/traces.md."""
    from muster.cli.trace_command import convert_trace as convert_file

    end("trace", work=lambda: convert_file(file, columns=columns, output=output, nodes_output=nodes_output))


@app.command(short_help="Measure throughput and latency against the targets.", epilog=BENCH_CODES)
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

    end("bench", json=json, work=work)


@app.command(short_help="Demonstrate Muster, in the simulator or on a real API server.", epilog=SIM_CODES)
def demo(
    kube: Annotated[
        bool, typer.Option("--kube", help="Start a local etcd and kube-apiserver, and schedule on them with `muster run`.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="Duration with --kube, in seconds.")] = 60.0,
) -> None:
    """Demonstrate Muster: two hours in the simulator, or with --kube a minute on a real API server."""
    from muster.cli.demo import demo_in_simulator, demo_on_kube

    end("demo", work=lambda: demo_on_kube(seconds) if kube else demo_in_simulator())
