"""A blocking HTTP client for the lab's servers, where there is no event loop. It neither retries nor limits requests."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

_REQUEST_TIMEOUT_S = 30.0


class RequestRefused(Exception):
    """The server answered with an error status."""

    def __init__(self, status: int, response: str) -> None:
        super().__init__(f"{status}: {response}")
        self.status = status


class BlockingClient:
    """Sequential requests on one connection."""

    def __init__(self, port: int, *, ca_file: Path, certificate: Path, key: Path, timeout_s: float = _REQUEST_TIMEOUT_S) -> None:
        context = ssl.create_default_context(cafile=str(ca_file))
        context.load_cert_chain(certificate, key)
        self._connection = HTTPSConnection("127.0.0.1", port, context=context, timeout=timeout_s)

    def request(self, method: str, path: str, *, body: object | None = None, content_type: str = "application/json") -> Any:
        """The response as JSON, or as text if it is none. Raises RequestRefused, or OSError without a response."""
        data = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, body=data, headers={"Content-Type": content_type})
            response = self._connection.getresponse()
            status, text = response.status, response.read().decode()
        except (OSError, HTTPException) as error:
            # The rest of an interrupted response must not be read as that of the next request.
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
        parsed: Mapping[str, Any] = json.loads(text)
    except ValueError:
        return text
    return parsed
