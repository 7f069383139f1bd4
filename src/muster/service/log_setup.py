"""Set-up of the log: one line per event on the error stream, as JSON or as text.

No module logs credentials; as a second line of defence, whatever looks like one is redacted.
"""

from __future__ import annotations

import logging
import re
import sys
from enum import StrEnum
from functools import lru_cache
from typing import Final

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

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
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.format_exc_info] if log_format is LogFormat.JSON else []),
            redact_secrets,
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


@lru_cache(maxsize=1000)
def _is_secret_key(key: str) -> bool:
    return _SECRET_KEY.search(key) is not None


class _StructlogHandler(logging.Handler):
    """Passes log records of libraries on to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger(record.name).log(record.levelno, record.getMessage(), exc_info=record.exc_info, logger=record.name)
