"""`muster convert`: convert a Volcano scheduler configuration to a policy file, and report the differences."""

from __future__ import annotations

from pathlib import Path

from muster.cli import OK
from muster.cli.errors import InvalidFiles
from muster.cli.scenario_files import read_text
from muster.cli.screen import DIM, NOTE, TextLine, to_stderr, to_stdout
from muster.convert import convert
from muster.yaml_positions import InputError


def convert_file(file: Path) -> int:
    """The policy is printed on standard output, the notes on standard error."""
    try:
        converted = convert(read_text(file), file=str(file))
    except InputError as error:
        raise InvalidFiles(error.faults) from None
    to_stdout().print_line(converted.text.rstrip("\n"))
    screen = to_stderr()
    for note in converted.notes:
        position = f"{file}:{note.line}: " if note.line else f"{file}: "
        screen.print_line(TextLine.of((position, DIM), (note.text, NOTE)))
    return OK
