"""Set-up of the log: one line per event on the error stream, as JSON or as text.

No module logs credentials; as a second line of defence, whatever looks like one is redacted.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from muster.model.printable_text import printable, printable_json, printable_lines

REDACTED: Final = "***"
_SECRET_KEY = re.compile(r"(?i)token|password|secret|authorization|credential|private.?key")
_SECRET_TEXT = re.compile(
    r"(?i)\b(bearer|basic)\s+\S+|eyJ[\w-]{8,}\.[\w-]+\.[\w-]*|-----BEGIN [A-Z ]*PRIVATE KEY-----.*", re.DOTALL
)


class LogFormat(StrEnum):
    JSON = "json"
    TEXT = "text"


def set_up_logging(log_format: LogFormat) -> None:
    """Log to the error stream from now on, libraries included."""
    renderer: Processor
    if log_format is LogFormat.JSON:
        renderer = structlog.processors.JSONRenderer(serializer=_json_line)
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redact_secrets,
            *([escape_text] if log_format is LogFormat.TEXT else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_StructlogHandler()], level=logging.WARNING, force=True)


def redact_secrets(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    for key, value in line.items():
        if _is_secret_key(key):
            line[key] = REDACTED
        elif isinstance(value, str) and _SECRET_TEXT.search(value):
            line[key] = _SECRET_TEXT.sub(REDACTED, value)
    return line


def escape_text(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    """For lines of text; lists are shown by `repr`, which escapes their texts."""
    for key, value in line.items():
        if isinstance(value, str):
            line[key] = printable_lines(value) if key == "exception" else printable(value)
    return line


def _json_line(line: EventDict, **options: Any) -> str:
    return printable_json(json.dumps(line, **options).encode()).decode()


@lru_cache(maxsize=1000)
def _is_secret_key(key: str) -> bool:
    return _SECRET_KEY.search(key) is not None


class _StructlogHandler(logging.Handler):
    """Passes log records of libraries on to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger(record.name).log(record.levelno, record.getMessage(), exc_info=record.exc_info, logger=record.name)
