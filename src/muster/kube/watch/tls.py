"""A mend for early releases of Python 3.11, which are what some systems ship: their TLS connections cannot be ended twice.

A connection that ended by itself has no protocol any more, and `abort` trips over that. Later releases ask first, as is done here.
"""

from __future__ import annotations

from asyncio import sslproto
from typing import Any

_Transport: Any = sslproto._SSLProtocolTransport


def fix_double_abort() -> None:
    """Let a TLS connection be ended that has ended already; does nothing where that works."""
    try:
        _Transport(None, None).abort()
    except AttributeError:
        _Transport.abort = _abort


def _abort(transport: Any) -> None:
    transport._closed = True
    if transport._ssl_protocol is not None:
        transport._ssl_protocol._abort()
