"""Commands whose exit codes answer a question: what was typed wrongly must not look like an answer."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

WRONG_USE = 64
"""The input of such a command cannot be used: neither 1, 2 nor 3, which mean something else there."""

_USUAL = 2
"""With this code the library leaves where options or arguments are wrong."""


class Answers(TyperCommand):
    """A command that leaves with WRONG_USE where its options or arguments are wrong."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if getattr(error, "exit_code", None) == _USUAL:
                error.exit_code = WRONG_USE  # type: ignore[attr-defined]
            raise
