"""Commands whose exit codes are an answer: an invalid option must not look like one."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

USAGE_ERROR = 64
"""The input of such a command is invalid; 1, 2 and 3 have other meanings there."""

_CLICK_USAGE_ERROR = 2
"""The exit code of the command-line library for invalid options and arguments."""


class UsageErrorCommand(TyperCommand):
    """A command that exits with USAGE_ERROR where its options or arguments are invalid."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if getattr(error, "exit_code", None) == _CLICK_USAGE_ERROR:
                error.exit_code = USAGE_ERROR  # type: ignore[attr-defined]
            raise
