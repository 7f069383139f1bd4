"""What the commands have in common: options with one name and one meaning, and how a command ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand

from muster.cli import BAD_INPUT, USAGE_ERROR
from muster.cli.errors import UserError, show_user_error

EXIT_CODES = "Exit codes: 0 success, 1 an expectation, invariant or target does not hold, 2 the input is invalid."
SIM_CODES = "Exit codes: 0 success, 1 an expectation or invariant does not hold, 2 the input is invalid."
REPLAY_CODES = "Exit codes: 0 identical, 1 a decision differs, 2 the input is invalid."
BENCH_CODES = "Exit codes: 0 success, 1 a workload failed or, with --check, a target is missed, 2 the input is invalid."
OTHER_CODES = "Exit codes: 0 success, 2 the input is invalid."


POLICY = typer.Option(metavar="FILE", help="Use this policy file in place of the scenario's own.")
KUBECONFIG = typer.Option(metavar="FILE", help="The kubeconfig; else KUBECONFIG, the pod's service account, or ~/.kube/config.")
CLUSTER = typer.Option(
    "--cluster",
    "-c",
    metavar="FILE",
    help="A scenario (`file.yaml:12`), a snapshot, or what `kubectl get -o json|yaml` prints; else the kubeconfig's cluster.",
)
AFTER_STEPS = typer.Option("--after-steps", help="Run the scenario's steps first; by default they are skipped.")
AS_SCHEDULER = typer.Option(metavar="NAME", help="Look at the pods that this scheduler serves, such as volcano.")
AT = typer.Option(metavar="TIME", help="When, in a decision log or a scenario: 14:05, or 1h19m after its beginning.")
NAMESPACE = typer.Option("--namespace", "-n", help="The namespace.")
JSON = typer.Option("--json", help="Print the result as JSON.")
ANSWER_CODES = "Exit codes: 0 success, 64 the input is invalid."
OUTPUT = typer.Option("--output", "-o", metavar="json|yaml|wide", help="The output format.")
CONTEXT = typer.Option(help="The context in the kubeconfig.")
RUN_TIME = typer.Option(metavar="DURATION", help="For how long pods run of which nobody knows, such as 4h: to say when it starts.")
HISTORY = typer.Option(metavar="LOG", help="A decision log: pods run for as long as earlier ones of the same owner did.")
SECONDS = typer.Option(min=0, help="Seconds at most to find out when it starts, and with which changes.")


COLUMNS = typer.Option("--columns", metavar="FILE", help="A file that says which column of the table is what.")
NODES = typer.Option(
    "--nodes", metavar="FILE|64x8", help="The cluster of a history: a table of nodes, or how many with how many GPUs."
)


TRACES = (".csv", ".csv.gz", ".swf", ".swf.gz", ".jsonl", ".jsonl.gz")


def is_history(file: str) -> bool:
    """A file of jobs, or a folder of snapshots: not scenarios."""
    from muster.trace.snapshot_reader import is_snapshot_folder

    return file.endswith(TRACES) or is_snapshot_folder(Path(file))


class AnsweringCommand(TyperCommand):
    """A command whose exit code is an answer: an invalid option must not look like one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if getattr(error, "exit_code", None) == BAD_INPUT:
                error.exit_code = USAGE_ERROR  # type: ignore[attr-defined]
            raise


def is_json(output: str, *, json: bool) -> bool:
    from muster.cli.json_output import use_yaml

    if output not in ("", "json", "yaml", "wide"):
        show_user_error(UserError(f"--output: {output!r} is none of json, yaml, wide"))
        raise typer.Exit(USAGE_ERROR)
    use_yaml(output == "yaml")
    return json or output in ("json", "yaml")


def end(command: str, *, work: Callable[[], int], json: bool = False, bad_input: int = BAD_INPUT) -> NoReturn:
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
