"""`muster trace convert`: a history in any format that is read, as Muster's own table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO

from muster.cli import OK
from muster.cli.errors import file_error
from muster.trace.csv_writer import write_jobs, write_nodes
from muster.trace.table_reader import read_jobs


def convert_trace(jobs: Path, *, columns: Path | None, output: Path | None, nodes_output: Path | None) -> int:
    trace = read_jobs(jobs, columns=columns)
    if nodes_output is not None:
        with _opened(nodes_output) as file:
            write_nodes(trace, file)
    if output is None:
        write_jobs(trace, sys.stdout)
    else:
        with _opened(output) as file:
            write_jobs(trace, file)
    print(f"{len(trace.jobs):,} jobs; {trace.left_out:,} rows without a run time left out", file=sys.stderr)
    return OK


def _opened(path: Path) -> IO[str]:
    try:
        return path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise file_error(path, error, why="the table cannot be written: ") from None
