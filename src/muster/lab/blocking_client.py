"""A plain way to the lab's own servers for whoever has no event loop: is it ready, what does it keep.

It retries nothing and limits nothing: the scheduler never comes through here.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

_REQUEST_TIMEOUT_S = 30.0


class RequestRefused(Exception):
    """The server answered, and not with a success."""

    def __init__(self, status: int, answer: str) -> None:
        super().__init__(f"{status}: {answer}")
        self.status = status


class BlockingClient:
    """Requests on one connection, one after the other."""

    def __init__(self, port: int, *, ca_file: Path, certificate: Path, key: Path, timeout_s: float = _REQUEST_TIMEOUT_S) -> None:
        context = ssl.create_default_context(cafile=str(ca_file))
        context.load_cert_chain(certificate, key)
        self._connection = HTTPSConnection("127.0.0.1", port, context=context, timeout=timeout_s)

    def request(self, method: str, path: str, *, body: object | None = None, content_type: str = "application/json") -> Any:
        """The answer as JSON, or as text if it is none. Raises Refused, or OSError where nobody answers."""
        sent = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, body=sent, headers={"Content-Type": content_type})
            answer = self._connection.getresponse()
            status, text = answer.status, answer.read().decode()
        except (OSError, HTTPException) as error:
            # What is left of an exchange that broke off belongs to no other.
            self._connection.close()
            raise error if isinstance(error, OSError) else ConnectionError(str(error)) from error
        if status >= 300:
            raise RequestRefused(status, text)
        return _parse(text)

    def is_ready(self, path: str) -> bool:
        try:
            self.request("GET", path)
        except (OSError, RequestRefused):
            return False
        return True

    def close(self) -> None:
        self._connection.close()


def _parse(text: str) -> Mapping[str, Any] | str:
    try:
        found: Mapping[str, Any] = json.loads(text)
    except ValueError:
        return text
    return found
