"""Servers that are emptied between two tests, directly in etcd: no finalizer or grace period delays it.

Objects that existed when the server became ready, or when the test said so, stay, and so do those that it writes itself.
CustomResourceDefinitions stay, too, unless requested otherwise: they take seconds to be served.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import groupby
from typing import Any

from tests.harness.blocking_client import BlockingClient

from muster.lab.servers import Servers

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


class ResettableServers(Servers):
    def __enter__(self) -> ResettableServers:
        super().__enter__()
        self.etcd = self._client(self._etcd_port)
        """etcd's JSON gateway."""
        self._stack.callback(self.etcd.close)
        self.keep_present_objects()
        return self

    def keep_present_objects(self) -> None:
        """A reset deletes only what is created from now on."""
        self._initial_keys = list_keys(self.etcd)

    @contextmanager
    def api(self) -> Iterator[BlockingClient]:
        """A client without an event loop, as the admin."""
        with closing(self._client(self._port)) as api:
            yield api

    def reset(self, *, kinds: bool = False) -> int:
        """Delete all objects created since `keep_present_objects`, and return their number. `kinds`: definitions as well."""
        return delete_objects(self.etcd, keep=self._initial_keys, kinds=kinds)

    def _client(self, port: int) -> BlockingClient:
        return BlockingClient(port, ca_file=self.ca_file, certificate=self.folder / "admin.crt", key=self.folder / "admin.key")


def list_keys(etcd: BlockingClient) -> list[bytes]:
    """The keys of all objects, sorted."""
    request = {"key": _base64(_REGISTRY_PREFIX), "range_end": _base64(_prefix_end(_REGISTRY_PREFIX)), "keys_only": True}
    response = etcd.request("POST", "/v3/kv/range", body=request)
    return sorted(b64decode(entry["key"]) for entry in response.get("kvs", ()))


def delete_objects(etcd: BlockingClient, *, keep: Iterable[bytes], kinds: bool = False) -> int:
    """Delete every object that is not to be kept, and return their number."""
    kept = frozenset(keep)
    present = list_keys(etcd)
    prefixes = _SERVER_OWNED_PREFIXES if kinds else (*_SERVER_OWNED_PREFIXES, *_CRD_PREFIXES)
    stays = [key in kept or key.startswith(prefixes) for key in present]
    _delete_ranges(etcd, list(_ranges(present, stays)))
    return stays.count(False)


def _ranges(present: list[bytes], stays: list[bool]) -> Iterator[tuple[bytes, bytes]]:
    """First and last key of each contiguous range to delete: thousands of pods are one range."""
    for stay, run in groupby(zip(stays, present, strict=True), key=lambda pair: pair[0]):
        keys = [key for _, key in run]
        if not stay:
            yield keys[0], keys[-1]


def _delete_ranges(etcd: BlockingClient, runs: list[tuple[bytes, bytes]]) -> None:
    ops: list[Any] = [{"request_delete_range": {"key": _base64(first), "range_end": _base64(last + b"\0")}} for first, last in runs]
    for start in range(0, len(ops), _MAX_TXN_OPS):
        etcd.request("POST", "/v3/kv/txn", body={"success": ops[start : start + _MAX_TXN_OPS]})
    # All deletions of a transaction have one revision. The server waits for the newest revision before it answers a list; with one
    # more after it, it has seen every deletion and not only the first.
    etcd.request("POST", "/v3/kv/put", body={"key": _base64(_REVISION_KEY), "value": _base64(b"")})


def _prefix_end(prefix: bytes) -> bytes:
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _base64(key: bytes) -> str:
    return b64encode(key).decode()
