"""`muster convert`: convert a Volcano scheduler configuration to a policy file, and report the differences."""

from __future__ import annotations

from pathlib import Path

from muster.cli import FAILED, OK
from muster.cli.screen import BOLD, DIM, NOTE, PLAIN, styled, to_stderr, to_stdout
from muster.cli.text_files import read_text
from muster.convert import NoteRank, convert


def convert_file(file: Path, *, strict: bool) -> int:
    """The policy is printed on standard output, the notes on standard error, too. Strict: a decision that changes is a failure."""
    converted = convert(read_text(file), file=str(file))
    to_stdout().print_lines(map(styled, converted.text.rstrip("\n").split("\n")))
    screen = to_stderr()
    for rank in NoteRank:
        notes = [note for note in converted.notes if note.rank is rank]
        screen.print_lines([styled((f"{rank.value.capitalize()}:", BOLD))] * bool(notes))
        for note in notes:
            position = f"{file}:{note.line}: " if note.line else f"{file}: "
            screen.print_line(styled((position, DIM), (note.text, NOTE if rank is NoteRank.CHANGES else PLAIN)))
    return FAILED if strict and any(note.rank is NoteRank.CHANGES for note in converted.notes) else OK
