"""A local etcd and kube-apiserver on loopback, with TLS and RBAC, in a temporary folder."""

from __future__ import annotations

import json
import ssl
import time
from base64 import b64encode
from collections.abc import Iterable
from contextlib import ExitStack, closing
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from itertools import count
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from types import TracebackType
from typing import TYPE_CHECKING

from muster.lab.assets import Assets, get_assets
from muster.lab.child_processes import Server, ServerDied, Watchdog, free_ports, write_private_file

if TYPE_CHECKING:
    from muster.lab.certificates import CertificateAuthority, KeyPair

ADMIN = ("admin", ("system:masters",))
"""The user with all permissions, and its groups."""

_READY_TIMEOUT_S = 60.0
_POLL_S = 0.05
_PROBE_TIMEOUT_S = 2.0
_START_ATTEMPTS = 3


class NoCertificateLibrary(Exception):
    """The package `cryptography` is not installed."""


class Servers:
    """A context manager. `native_pod_groups`: the server has Kubernetes' own PodGroups, and pods that refer to them."""

    def __init__(self, assets: Assets | None = None, *, native_pod_groups: bool = True, flags: Iterable[str] = ()) -> None:
        self._assets = assets
        self._native_pod_groups = native_pod_groups
        self._flags = tuple(flags)
        self._kubeconfig_numbers = count(1)
        self._stack = ExitStack()

    def __enter__(self) -> Servers:
        assets = self._assets or get_assets()
        with ExitStack() as stack:
            self.folder = Path(mkdtemp(prefix="muster-lab-"))
            stack.callback(rmtree, self.folder, ignore_errors=True)
            self._watchdog = Watchdog(self.folder)
            stack.callback(self._watchdog.close)
            self._write_certificates()
            self._start(assets, stack=stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    # -- for clients -----------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.crt"

    def kubeconfig(self, user: str = ADMIN[0], groups: Iterable[str] | None = None) -> Path:
        """A new kubeconfig for this user, with its own certificate. Without `groups` the admin has its own, and others none."""
        if groups is None:
            groups = ADMIN[1] if user == ADMIN[0] else ()
        pair = self._authority.user(user, groups=groups)
        content = _kubeconfig(self.url, user=user, ca=self._authority.certificate, pair=pair)
        return write_private_file(self.folder / f"kubeconfig-{next(self._kubeconfig_numbers)}", json.dumps(content).encode())

    def check(self) -> None:
        """Raises ServerDied, with the end of its log, if one of them is not running any more."""
        for server in self._processes:
            server.check()

    # -- starting --------------------------------------------------------------------------------------------------------------

    def _write_certificates(self) -> None:
        self._authority = _new_authority()
        (self.folder / "ca.crt").write_bytes(self._authority.certificate)
        for name in ("etcd", "apiserver"):
            self._write_pair(name, self._authority.server(name))
        self._write_pair("admin", self._authority.user(ADMIN[0], groups=ADMIN[1]))
        self._tls = ssl.create_default_context(cafile=self.ca_file)
        self._tls.load_cert_chain(self.folder / "admin.crt", self.folder / "admin.key")

    def _write_pair(self, name: str, pair: KeyPair) -> None:
        (self.folder / f"{name}.crt").write_bytes(pair.certificate)
        write_private_file(self.folder / f"{name}.key", pair.key)

    def _start(self, assets: Assets, *, stack: ExitStack) -> None:
        """A port that was free a moment ago may be in use now: then try others."""
        for attempts_left in reversed(range(_START_ATTEMPTS)):
            with ExitStack() as attempt:
                try:
                    self._start_once(assets, stack=attempt)
                except ServerDied as died:
                    if "address already in use" in str(died) and attempts_left:
                        continue
                    raise
                stack.push(attempt.pop_all())
                return

    def _start_once(self, assets: Assets, *, stack: ExitStack) -> None:
        self._etcd_port, peer_port, self._port = free_ports(3)
        etcd = self._spawn(_etcd_command(assets.etcd, self.folder, port=self._etcd_port, peer_port=peer_port), stack=stack)
        command = _apiserver_command(assets.kube_apiserver, self.folder, port=self._port, etcd_port=self._etcd_port)
        pod_groups = _NATIVE_POD_GROUP_FLAGS if self._native_pod_groups else ()
        apiserver = self._spawn([*command, *pod_groups, *self._flags], stack=stack)
        self._processes = (etcd, apiserver)
        self._wait_until_ready()

    def _spawn(self, command: list[str], *, stack: ExitStack) -> Server:
        server = Server(command, log=self.folder / f"{Path(command[0]).name}.log", watchdog=self._watchdog)
        stack.callback(server.stop)
        return server

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not (self._is_ready(self._etcd_port, "/health") and self._is_ready(self._port, "/readyz")):
            self.check()
            if time.monotonic() > deadline:
                logs = "\n".join(f"{server.name}:\n{server.log_tail()}" for server in self._processes)
                raise ServerDied(f"the servers were not ready after {_READY_TIMEOUT_S:.0f} s\n{logs}")
            time.sleep(_POLL_S)

    def _is_ready(self, port: int, path: str) -> bool:
        # Another process on the port may never respond.
        with closing(HTTPSConnection("127.0.0.1", port, context=self._tls, timeout=_PROBE_TIMEOUT_S)) as connection:
            try:
                connection.request("GET", path)
                return connection.getresponse().status == HTTPStatus.OK
            except (OSError, HTTPException):
                return False


def _new_authority() -> CertificateAuthority:
    try:
        from muster.lab.certificates import CertificateAuthority
    except ImportError:
        raise NoCertificateLibrary("certificates need the package cryptography: pip install 'muster-scheduler[lab]'") from None
    return CertificateAuthority()


# With the gate alone the server never becomes ready: the version must be served as well.
_NATIVE_POD_GROUP_FLAGS = ("--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true")


def _etcd_command(program: Path, folder: Path, *, port: int, peer_port: int) -> list[str]:
    clients, peers = f"https://127.0.0.1:{port}", f"https://127.0.0.1:{peer_port}"
    flags = {
        "name": "lab",
        "data-dir": folder / "etcd",
        "listen-client-urls": clients,
        "advertise-client-urls": clients,
        "listen-peer-urls": peers,
        "initial-advertise-peer-urls": peers,
        "initial-cluster": f"lab={peers}",
        "cert-file": folder / "etcd.crt",
        "key-file": folder / "etcd.key",
        "trusted-ca-file": folder / "ca.crt",
        "client-cert-auth": "true",
        "peer-cert-file": folder / "etcd.crt",
        "peer-key-file": folder / "etcd.key",
        "peer-trusted-ca-file": folder / "ca.crt",
        "peer-client-cert-auth": "true",
        # The data need not survive a crash.
        "unsafe-no-fsync": "true",
        "quota-backend-bytes": str(8 << 30),
        "log-level": "warn",
    }
    return [str(program), *(f"--{flag}={value}" for flag, value in flags.items())]


def _apiserver_command(program: Path, folder: Path, *, port: int, etcd_port: int) -> list[str]:
    flags = {
        "etcd-servers": f"https://127.0.0.1:{etcd_port}",
        "etcd-cafile": folder / "ca.crt",
        "etcd-certfile": folder / "admin.crt",
        "etcd-keyfile": folder / "admin.key",
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": port,
        "tls-cert-file": folder / "apiserver.crt",
        "tls-private-key-file": folder / "apiserver.key",
        "client-ca-file": folder / "ca.crt",
        "cert-dir": folder,
        "authorization-mode": "RBAC",
        "anonymous-auth": "false",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": folder / "apiserver.crt",
        "service-account-signing-key-file": folder / "apiserver.key",
        "service-cluster-ip-range": "10.0.0.0/24",
        # No controller creates the service account that pods would need, or removes the finalizers of claims.
        "disable-admission-plugins": "ServiceAccount,StorageObjectInUseProtection",
        # As in the simulated cluster.
        "default-not-ready-toleration-seconds": "5",
        "default-unreachable-toleration-seconds": "5",
        "endpoint-reconciler-type": "none",
    }
    return [str(program), *(f"--{flag}={value}" for flag, value in flags.items())]


def _kubeconfig(url: str, *, user: str, ca: bytes, pair: KeyPair) -> dict[str, object]:
    """As JSON, which is YAML as well."""
    credentials = {"client-certificate-data": _base64(pair.certificate), "client-key-data": _base64(pair.key)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": url, "certificate-authority-data": _base64(ca)}}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
        "current-context": "lab",
    }


def _base64(pem: bytes) -> str:
    return b64encode(pem).decode()
