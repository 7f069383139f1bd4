"""Reads text files that the arguments name."""

from __future__ import annotations

from pathlib import Path

from muster.cli.errors import UserError, file_error
from muster.yaml_positions import nearest


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file{_hint(path)}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise file_error(path, error) from None


def _hint(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return ""
    near = nearest(path.name, [file.name for file in folder.iterdir()])
    return f". Did you mean {str(folder / near)!r}?" if near else ""
