"""Empties a cluster between two tests, in the store behind the API server: nobody's finalizer or grace period is in the way.

What was there when the server became ready stays, and so does what it writes for itself. Kinds that were installed stay, too,
unless asked otherwise: they take seconds to be served.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from muster.lab.blocking_client import BlockingClient

_REGISTRY_PREFIX = b"/registry/"
_REVISION_KEY = b"/muster-lab/touched"
_SERVER_OWNED_PREFIXES = (
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
_CRD_PREFIXES = (b"/registry/apiextensions.k8s.io/", b"/registry/apiregistration.k8s.io/")
_MAX_TXN_OPS = 100


def list_keys(etcd: BlockingClient) -> list[bytes]:
    """The keys of all objects, sorted."""
    asked = {"key": _base64(_REGISTRY_PREFIX), "range_end": _base64(_prefix_end(_REGISTRY_PREFIX)), "keys_only": True}
    found = etcd.request("POST", "/v3/kv/range", body=asked)
    return sorted(b64decode(one["key"]) for one in found.get("kvs", ()))


def delete_objects(etcd: BlockingClient, *, keep: Iterable[bytes], kinds: bool = False) -> int:
    """Remove every object that is not to be kept; say how many. `kinds`: custom kinds as well."""
    known = frozenset(keep)
    present = list_keys(etcd)
    prefixes = _SERVER_OWNED_PREFIXES if kinds else (*_SERVER_OWNED_PREFIXES, *_CRD_PREFIXES)
    stays = [key in known or key.startswith(prefixes) for key in present]
    _delete_ranges(etcd, list(_ranges(present, stays)))
    return stays.count(False)


def _ranges(present: list[bytes], stays: list[bool]) -> Iterator[tuple[bytes, bytes]]:
    """First and last of those that go and stand side by side: thousands of pods are one range."""
    for stay, run in groupby(zip(stays, present, strict=True), key=lambda one: one[0]):
        keys = [key for _, key in run]
        if not stay:
            yield keys[0], keys[-1]


def _delete_ranges(etcd: BlockingClient, runs: list[tuple[bytes, bytes]]) -> None:
    ops: list[Any] = [{"request_delete_range": {"key": _base64(first), "range_end": _base64(last + b"\0")}} for first, last in runs]
    for start in range(0, len(ops), _MAX_TXN_OPS):
        etcd.request("POST", "/v3/kv/txn", body={"success": ops[start : start + _MAX_TXN_OPS]})
    # All that went bears one revision. The server waits for the newest one before it answers a list: with another behind it, it
    # has seen every removal, and not only the first.
    etcd.request("POST", "/v3/kv/put", body={"key": _base64(_REVISION_KEY), "value": _base64(b"")})


def _prefix_end(prefix: bytes) -> bytes:
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _base64(key: bytes) -> str:
    return b64encode(key).decode()
