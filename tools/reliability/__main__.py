"""`python -m tools.reliability ROW --amount N`: measures one row and writes it into docs/reliability.md."""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime

from tools.reliability.page import write_row
from tools.reliability.rows import ROWS


def main() -> int:
    args = _arguments()
    row = ROWS[args.row]
    began = time.monotonic()
    measured = row.measure(args.amount if args.amount is not None else row.amount)
    minutes = (time.monotonic() - began) / 60
    for fault in measured.faults:
        print(fault)
    print(f"{args.row}: {measured.reached}, {len(measured.faults)} faults, {minutes:.1f} min")
    if not args.dry_run:
        write_row(args.row, row, measured, day=datetime.now(UTC).date(), minutes=minutes)
    return 1 if measured.faults else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.reliability", description=__doc__)
    parser.add_argument("row", choices=sorted(ROWS), help="what is tried")
    parser.add_argument("--amount", type=int, default=None, help="how much of it; by default the target")
    parser.add_argument("--dry-run", action="store_true", help="leave the page as it is")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
