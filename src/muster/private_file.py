"""Files that only their owner can read: decision logs, logs and snapshots tell what others run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Literal, cast


def open_private(path: Path, mode: Literal["wb", "ab"]) -> BinaryIO:
    """A file that is created with mode 0600. One that exists keeps its mode: its owner chose it, or it is a pipe."""
    return cast(BinaryIO, open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600)))
