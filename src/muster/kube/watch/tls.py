"""A fix for early releases of Python 3.11, which some distributions ship: `abort` of a TLS connection that has ended raises.

A connection that has ended has no protocol any more. Later releases check for that, as is done here.
"""

from __future__ import annotations

from asyncio import sslproto
from typing import Any

_Transport: Any = sslproto._SSLProtocolTransport


def fix_double_abort() -> None:
    """Allow `abort` of a TLS connection that has ended; does nothing where Python allows it."""
    try:
        _Transport(None, None).abort()
    except AttributeError:
        _Transport.abort = _abort


def _abort(transport: Any) -> None:
    transport._closed = True
    if transport._ssl_protocol is not None:
        transport._ssl_protocol._abort()
