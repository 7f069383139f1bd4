"""The `muster` command: one module per subcommand, and what they share (tables, charts, JSON, error texts).

May be changed here: options, texts and layout. Must not: decisions (commands call `muster.scenario`, `muster.forecast`,
`muster.replay` and `muster.service`, and format what those return), the exit codes, and the JSON keys without `SCHEMA_VERSION`
(docs/cli.md lists both). `main` imports next to nothing, so that `muster --help` answers at once; each command imports what it
needs when it runs. Tests: tests/cli, and tests/kube for `run`, `demo --kube` and `snapshot`.
"""

from __future__ import annotations

import sys
from pathlib import Path

OK, FAILED, BAD_INPUT, BUG, INTERRUPTED = 0, 1, 2, 70, 130
"""Exit codes: success; an expectation, invariant or target does not hold; invalid input; an internal error; Ctrl-C."""

USAGE_ERROR = 64
"""Invalid input of a command whose other exit codes are an answer."""

DEBUG = "--debug"


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code. A traceback is shown with --debug only."""
    from muster.cli.errors import show_bug

    remaining = [argument for argument in arguments if argument != DEBUG]
    try:
        return _dispatch(remaining)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:  # Whatever arrives here is a bug, in Muster or in a plugin of the user.
        if DEBUG in arguments:
            raise
        return BUG if show_bug(error, arguments) else BAD_INPUT


def _dispatch(arguments: list[str]) -> int:
    from muster.cli.app import app
    from muster.cli.retired_options import RETIRED_OPTIONS

    for option in (argument.partition("=")[0] for argument in arguments[1:]):
        if (retired := RETIRED_OPTIONS.get((arguments[0], option))) is not None:
            print(f"muster {arguments[0]}: {option} {retired}", file=sys.stderr)
            return BAD_INPUT
    try:
        app(args=arguments, prog_name="kubectl muster" if Path(sys.argv[0]).name == "kubectl-muster" else "muster")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else OK if end.code is None else FAILED
    return OK
