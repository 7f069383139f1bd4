"""Who may read the API: everybody on this machine, and elsewhere whoever has a token of the cluster, as far as she may list pods.

The API server is asked who she is (TokenReview) and what she may read (SubjectAccessReview); its answers count for a while.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Any, Final, Protocol

import msgspec

CACHE_S: Final = 60.0
REFUSAL_CACHE_S: Final = 10.0
_MIN_CACHE_S: Final = 1.0
MAX_CACHED: Final = 10_000
MAX_NAMESPACES: Final = 1000
"""So many are asked about for one caller."""
_MAX_REVIEWS: Final = 10
"""At once."""
UNAUTHORIZED, FORBIDDEN, UNAVAILABLE = 401, 403, 503

Review = Callable[[str, dict[str, Any]], Awaitable[bytes]]
"""Path and object -> the object with its status."""


class Denied(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Reader(Protocol):
    """Whoever asks."""

    async def visible(self, namespaces: Callable[[], Awaitable[Iterable[str]]]) -> frozenset[str] | None:
        """Those of them that she may see; None for everything."""
        ...


class ApiAccess(Protocol):
    async def reader(self, *, remote: str, host: str, token: str) -> Reader:
        """Raises Denied."""
        ...


class Everything:
    """Somebody on this machine."""

    async def visible(self, namespaces: Callable[[], Awaitable[Iterable[str]]]) -> frozenset[str] | None:  # noqa: ARG002
        return None


class LoopbackAccess:
    """Addresses of this machine, of the pod in a cluster; `kubectl port-forward` comes from there, and needs rights.

    A page of somebody else that a browser on this machine shows is refused: it names another host, whatever that resolves to.
    """

    async def reader(self, *, remote: str, host: str, token: str) -> Reader:  # noqa: ARG002
        if not is_local(remote):
            raise Denied(FORBIDDEN, "only this machine may ask here: use kubectl port-forward, or --api-address")
        if not names_this_machine(host):
            raise Denied(FORBIDDEN, "the address must be named as localhost or 127.0.0.1")
        return Everything()


def is_local(address: str) -> bool:
    """Is it an address of this machine, of the pod in a cluster?"""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback


def names_this_machine(host: str) -> bool:
    """The `Host` of a request: that of a page of somebody else is another, whatever it resolves to."""
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    return name == "localhost" or is_local(name.strip("[]"))


@dataclass(frozen=True, slots=True)
class _Answer:
    value: Any
    until: float


class TokenAccess:
    def __init__(
        self, review: Review, *, clock: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._review = review
        self._clock = clock
        self._wall_clock = wall_clock
        self._answers: dict[tuple[str, ...], _Answer] = {}
        self._slots = asyncio.Semaphore(_MAX_REVIEWS)

    async def reader(self, *, remote: str, host: str, token: str) -> Reader:  # noqa: ARG002
        if not token:
            raise Denied(UNAUTHORIZED, "send a token of this cluster: Authorization: Bearer ...")
        # The token itself is kept nowhere.
        key = hashlib.sha256(token.encode()).hexdigest()
        ends_at = _ends_at(token)
        # Whether it has ended is for the API server to say, by its own clock.
        most_s = CACHE_S if ends_at is None else max(_MIN_CACHE_S, ends_at - self._wall_clock())
        user = await self._cached(("user", key), lambda: self._user(token), most_s=most_s)
        if user is None:
            raise Denied(UNAUTHORIZED, "the cluster does not know this token")
        return _Tenant(self, key, user)

    async def may_list_pods(self, key: str, user: dict[str, Any], namespace: str) -> bool:
        """An empty namespace: in all of them."""
        return bool(await self._cached(("pods", key, namespace), lambda: self._may_list_pods(user, namespace)))

    async def _cached(self, key: tuple[str, ...], ask: Callable[[], Awaitable[Any]], *, most_s: float = CACHE_S) -> Any:
        known = self._answers.get(key)
        if known is None or known.until <= self._clock():
            async with self._slots:
                value = await ask()
            if len(self._answers) >= MAX_CACHED:
                self._answers.clear()
            known = self._answers[key] = _Answer(value, self._clock() + min(most_s, CACHE_S if value else REFUSAL_CACHE_S))
        return known.value

    async def _user(self, token: str) -> dict[str, Any] | None:
        status = await self._ask("authentication.k8s.io", "TokenReview", {"token": token})
        return status.get("user") if status.get("authenticated") else None

    async def _may_list_pods(self, user: dict[str, Any], namespace: str) -> bool:
        who = {"user": user.get("username", ""), "groups": user.get("groups", []), "uid": user.get("uid", "")}
        pods = {"verb": "list", "resource": "pods", "namespace": namespace}
        spec = {**who, "extra": user.get("extra", {}), "resourceAttributes": pods}
        status = await self._ask("authorization.k8s.io", "SubjectAccessReview", spec)
        return bool(status.get("allowed")) and not status.get("denied")

    async def _ask(self, group: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        manifest = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        answer = msgspec.json.decode(await self._review(f"/apis/{group}/v1/{kind.lower()}s", manifest))
        found = answer.get("status") if isinstance(answer, dict) else None
        return found if isinstance(found, dict) else {}


def _ends_at(token: str) -> float | None:
    """When a token says that it ends."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        ends = claims.get("exp") if isinstance(claims, dict) else None
    except ValueError:
        return None
    return float(ends) if isinstance(ends, int | float) else None


@dataclass(frozen=True, slots=True)
class _Tenant:
    access: TokenAccess
    key: str
    user: dict[str, Any]

    async def visible(self, namespaces: Callable[[], Awaitable[Iterable[str]]]) -> frozenset[str] | None:
        if await self.access.may_list_pods(self.key, self.user, ""):
            return None
        asked = sorted(set(await namespaces()))[:MAX_NAMESPACES]
        allowed = await asyncio.gather(*(self.access.may_list_pods(self.key, self.user, each) for each in asked))
        return frozenset(each for each, may in zip(asked, allowed, strict=True) if may)
