"""What a person types: `muster sim`, `muster replay`, `muster check`, `muster bench`.

`main` is the console script. It imports next to nothing, so that `muster --help` answers at once; every command fetches what it
needs when it runs. Nothing here decides anything about a cluster.
"""

from __future__ import annotations

import sys

OK, FAILED, BAD_INPUT, BUG, INTERRUPTED = 0, 1, 2, 70, 130
"""Exit codes: all is well; an expectation, law or bar does not hold; the input cannot be used; Muster is at fault; Ctrl-C."""

DEBUG = "--debug"


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and give its exit code. A user never sees a traceback, unless they ask for it."""
    from muster.cli.errors import UserError, show_bug, show_user_error

    wanted = [word for word in arguments if word != DEBUG]
    try:
        return _dispatch(wanted)
    except UserError as error:
        show_user_error(error)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        sys.stderr.close()
        return OK
    except Exception as error:  # The last line of defence: what comes here is a bug, ours or that of somebody's plugin.
        if DEBUG in arguments:
            raise
        return BUG if show_bug(error, arguments) else BAD_INPUT


def _dispatch(arguments: list[str]) -> int:
    from muster.cli.app import app

    try:
        app(args=arguments, prog_name="muster")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else OK if end.code is None else FAILED
    return OK
