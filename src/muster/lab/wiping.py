"""Empties a cluster between two tests, in the store behind the API server: nobody's finalizer or grace period is in the way.

What was there when the server became ready stays, and so does what it writes for itself. Kinds that were installed stay, too,
unless asked otherwise: they take seconds to be served.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from muster.lab.door import Door

_ROOT = b"/registry/"
_TOUCHED = b"/muster-lab/touched"
_OF_THE_SERVER = (
    b"/registry/leases/kube-system/apiserver-",
    b"/registry/peerserverleases/",
    b"/registry/configmaps/kube-system/",
    b"/registry/ranges/",
    b"/registry/services/specs/default/kubernetes",
    b"/registry/services/endpoints/default/kubernetes",
    b"/registry/endpointslices/default/kubernetes",
    b"/registry/ipaddresses/",
    b"/registry/servicecidrs/",
    b"/registry/namespaces/kube-",
    b"/registry/namespaces/default",
)
_INSTALLED = (b"/registry/apiextensions.k8s.io/", b"/registry/apiregistration.k8s.io/")
_OPS_OF_A_TRANSACTION = 100


def keys_in(store: Door) -> list[bytes]:
    """The keys of all objects, sorted."""
    asked = {"key": _text(_ROOT), "range_end": _text(_after(_ROOT)), "keys_only": True}
    found = store.ask("POST", "/v3/kv/range", body=asked)
    return sorted(b64decode(one["key"]) for one in found.get("kvs", ()))


def wipe(store: Door, *, keep: Iterable[bytes], kinds: bool = False) -> int:
    """Remove every object that is not to be kept; say how many. `kinds`: custom kinds as well."""
    known = frozenset(keep)
    present = keys_in(store)
    prefixes = _OF_THE_SERVER if kinds else (*_OF_THE_SERVER, *_INSTALLED)
    stays = [key in known or key.startswith(prefixes) for key in present]
    _remove(store, list(_runs(present, stays)))
    return stays.count(False)


def _runs(present: list[bytes], stays: list[bool]) -> Iterator[tuple[bytes, bytes]]:
    """First and last of those that go and stand side by side: thousands of pods are one range."""
    for stay, run in groupby(zip(stays, present, strict=True), key=lambda one: one[0]):
        keys = [key for _, key in run]
        if not stay:
            yield keys[0], keys[-1]


def _remove(store: Door, runs: list[tuple[bytes, bytes]]) -> None:
    ops: list[Any] = [{"request_delete_range": {"key": _text(first), "range_end": _text(last + b"\0")}} for first, last in runs]
    for start in range(0, len(ops), _OPS_OF_A_TRANSACTION):
        store.ask("POST", "/v3/kv/txn", body={"success": ops[start : start + _OPS_OF_A_TRANSACTION]})
    # All that went bears one revision. The server waits for the newest one before it answers a list: with another behind it, it
    # has seen every removal, and not only the first.
    store.ask("POST", "/v3/kv/put", body={"key": _text(_TOUCHED), "value": _text(b"")})


def _after(prefix: bytes) -> bytes:
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _text(key: bytes) -> str:
    return b64encode(key).decode()
