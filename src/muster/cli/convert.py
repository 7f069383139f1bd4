"""`muster convert`: Volcano's scheduler configuration as a policy file, and what is not as it was."""

from __future__ import annotations

from pathlib import Path

from muster.cli import OK
from muster.cli.errors import InvalidFiles
from muster.cli.scenario_files import read_text
from muster.cli.screen import DIM, NOTE, TextLine, to_stderr, to_stdout
from muster.convert import convert
from muster.yaml_positions import InputError


def convert_file(file: Path) -> int:
    """The policy goes to standard output, so that it can be written to a file; all that a person should know goes beside it."""
    try:
        made = convert(read_text(file), file=str(file))
    except InputError as error:
        raise InvalidFiles(error.faults) from None
    to_stdout().print_line(made.text.rstrip("\n"))
    screen = to_stderr()
    for note in made.notes:
        place = f"{file}:{note.line}: " if note.line else f"{file}: "
        screen.print_line(TextLine.of((place, DIM), (note.text, NOTE)))
    return OK
