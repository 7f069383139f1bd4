"""The command line: its groups of commands. Each command imports what it needs when it runs: `--help` must not wait for NumPy."""

from __future__ import annotations

from typing import Annotated

import typer

from muster import __version__
from muster.cli import question_commands, service_commands, simulation_commands
from muster.cli.command_options import EXIT_CODES

app = typer.Typer(
    name="muster",
    help="A gang-aware scheduler for Kubernetes: pods that belong together start together, or not at all.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for group in (simulation_commands, question_commands, service_commands):
    app.add_typer(group.app)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"muster {__version__}")
        raise typer.Exit()


@app.callback(epilog=EXIT_CODES)
def muster(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an internal error.")] = False,
) -> None:
    """A gang-aware scheduler for Kubernetes: pods that belong together start together, or not at all."""
