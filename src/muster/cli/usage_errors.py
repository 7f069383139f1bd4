"""Commands whose exit codes answer a question: what was typed wrongly must not look like an answer."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

USAGE_ERROR = 64
"""The input of such a command cannot be used: neither 1, 2 nor 3, which mean something else there."""

_CLICK_USAGE_ERROR = 2
"""With this code the library leaves where options or arguments are wrong."""


class UsageErrorCommand(TyperCommand):
    """A command that leaves with WRONG_USE where its options or arguments are wrong."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if getattr(error, "exit_code", None) == _CLICK_USAGE_ERROR:
                error.exit_code = USAGE_ERROR  # type: ignore[attr-defined]
            raise
