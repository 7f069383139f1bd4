"""`muster convert`: Volcano's scheduler configuration as a policy file, and what is not as it was."""

from __future__ import annotations

from pathlib import Path

from muster.cli import OK
from muster.cli.errors import BadFiles
from muster.cli.files import read_text
from muster.cli.screen import DIM, NOTE, Line, to_stderr, to_stdout
from muster.convert import convert
from muster.yaml_marks import InputError


def convert_file(file: Path) -> int:
    """The policy goes to standard output, so that it can be written to a file; all that a person should know goes beside it."""
    try:
        made = convert(read_text(file), file=str(file))
    except InputError as error:
        raise BadFiles(error.faults) from None
    to_stdout().say(made.text.rstrip("\n"))
    screen = to_stderr()
    for note in made.notes:
        place = f"{file}:{note.line}: " if note.line else f"{file}: "
        screen.say(Line.of((place, DIM), (note.text, NOTE)))
    return OK
