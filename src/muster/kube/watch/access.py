"""The address of the API server, its certificate authority and the credentials: from a kubeconfig or a service account.

What is plain is read by `plain_login`; for login plugins there is the official client, which supports every one, and whose requests
are not used. Credentials may change at run time: tokens and certificates are read again from time to time, and at once when the
server refuses them.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import structlog
import yaml

from muster.kube.watch.plain_login import IN_CLUSTER_VARIABLE, Login, read_plain_kubeconfig, read_service_account

log = structlog.get_logger(__name__)

FILE_REFRESH_S: Final = 60.0
"""How often credential files are read again."""
_REFRESH_FRACTION = 0.8
"""The part of a token's lifetime after which it is renewed."""
_MIN_REFRESH_S = 10.0


class AccessError(Exception):
    """No access to a cluster. The message says what was tried and what to do."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The value of the Authorization header, and the files of a client certificate. All may be empty.

    After `refresh_after_s` they are read again, before they expire; None where they do not. `impersonation` are the impersonation
    headers of a kubeconfig's user.
    """

    header: str = field(default="", repr=False)
    cert_file: str = ""
    key_file: str = ""
    refresh_after_s: float | None = None
    impersonation: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Access:
    """Access to one API server. `reload` reads the credentials again; without it they never change.

    Two threads may share one: attributes are replaced as a whole, never changed in place.
    """

    server: str
    context: ssl.SSLContext | None = None
    credentials: Credentials = Credentials()
    reload: Callable[[], Awaitable[Credentials]] | None = None
    server_name: str = ""
    """The name in the server's certificate, where it differs from the address."""
    proxy: str = ""
    _read_at: float = field(init=False, repr=False)
    _files_modified_at: tuple[float, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._read_at = time.monotonic()
        self._files_modified_at = _modified_at(self.credentials)

    @property
    def is_due(self) -> bool:
        refresh_after_s = self.credentials.refresh_after_s
        return refresh_after_s is not None and time.monotonic() - self._read_at >= refresh_after_s

    async def renew(self) -> None:
        """Read the credentials again. Open connections keep the certificate with which they were opened."""
        if self.reload is None:
            return
        fresh = await self.reload()
        written_at = _modified_at(fresh)
        is_new = (written_at, fresh.cert_file) != (self._files_modified_at, self.credentials.cert_file)
        if self.context is not None and fresh.cert_file and is_new:
            self.context.load_cert_chain(fresh.cert_file, fresh.key_file or None)
        self.credentials, self._files_modified_at, self._read_at = fresh, written_at, time.monotonic()


def _modified_at(credentials: Credentials) -> tuple[float, ...]:
    """When the files of the certificate were last written: a certificate may be replaced in place."""
    files = (credentials.cert_file, credentials.key_file)
    return tuple(Path(file).stat().st_mtime for file in files if file and Path(file).exists())


async def read_access(kubeconfig: Path | None = None, context: str = "") -> Access:
    """From the given kubeconfig, else KUBECONFIG, else the service account of this pod, else ~/.kube/config."""
    named = str(kubeconfig) if kubeconfig is not None else os.environ.get("KUBECONFIG", "")
    if not named and not context and os.environ.get(IN_CLUSTER_VARIABLE):
        return await _access(_load_service_account)
    paths = named or str(Path.home() / ".kube" / "config")
    if not any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path):
        raise AccessError(f"no kubeconfig at {paths}; name one with --kubeconfig or KUBECONFIG, or run in a pod of the cluster")
    return await _access(partial(_load_kubeconfig, paths, context=context))


async def _access(load: Callable[[], Awaitable[Login]]) -> Access:
    """`load` reads all files, now and whenever credentials are read again: a new login of the user is written there."""

    async def reload() -> Credentials:
        return _credentials(await load())

    login = await load()
    return Access(
        server=login.server,
        context=_tls(login) if login.server.startswith("https") else None,
        credentials=_credentials(login),
        reload=reload,
        server_name=login.server_name,
        proxy=login.proxy or _proxy_for(login.server),
    )


async def _load_kubeconfig(paths: str, *, context: str) -> Login:
    return read_plain_kubeconfig(paths, context=context) or await _load_with_official_client(paths, context=context)


async def _load_with_official_client(paths: str, *, context: str) -> Login:
    """Imported only where it is used, because that takes a second. It has no usable types."""
    client: Any = import_module("kubernetes.aio.client")
    config: Any = import_module("kubernetes.aio.config")
    settings = client.Configuration()
    try:
        loader = await config.load_kube_config(
            config_file=paths, context=context or None, client_configuration=settings, persist_config=False
        )
    except (config.ConfigException, OSError, ValueError, TypeError, KeyError, yaml.YAMLError) as error:
        raise AccessError(f"kubeconfig {paths}: {_context_fault(paths, context) or error}") from error
    return Login(
        settings.host,
        settings.api_key.get("BearerToken", ""),
        ca_file=settings.ssl_ca_cert or "",
        cert_file=settings.cert_file or "",
        key_file=settings.key_file or "",
        is_verified=settings.verify_ssl,
        server_name=settings.tls_server_name or "",
        proxy=settings.proxy or "",
        user=loader._user.value if loader._user is not None else {},
        expiry=getattr(loader, "exec_plugin_expiry", None),
    )


def _context_fault(paths: str, context: str) -> str:
    """What is wrong with the context that is asked for, or the current one; empty where it is there."""
    names: list[str] = []
    wanted = context
    for path in paths.split(os.pathsep):
        with suppress(OSError, yaml.YAMLError, AttributeError, TypeError, KeyError):
            document = yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8"))
            wanted = wanted or document.get("current-context") or ""
            names += [str(each["name"]) for each in document.get("contexts") or ()]
    if wanted in names:
        return ""
    known = f"its contexts are {', '.join(sorted(names))}" if names else "it has no context at all"
    return (
        f"there is no context {wanted!r}; {known}" if wanted else f"it names no current context: choose one with --context; {known}"
    )


def _credentials(login: Login) -> Credentials:
    plugin = login.user.get("exec")
    # The official client logs a failure of the plugin and continues without credentials, which have no permissions.
    if plugin and not login.header and not login.cert_file:
        raise AccessError(
            f"the login plugin {plugin.get('command', '')!r} of the kubeconfig returned no credentials; run it by hand"
        )
    refresh_after_s = _token_refresh_s(login.expiry) if plugin else _file_refresh_s(login.user)
    return Credentials(login.header, login.cert_file, login.key_file, refresh_after_s, _impersonation_headers(login.user))


def _impersonation_headers(user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The official client ignores them. Without them Muster would act with permissions that the kubeconfig gives up."""
    headers: list[tuple[str, Any]] = [("Impersonate-User", user.get("as")), ("Impersonate-Uid", user.get("as-uid"))]
    headers += [("Impersonate-Group", group) for group in user.get("as-groups") or ()]
    extra: Mapping[str, Any] = user.get("as-user-extra") or {}
    headers += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for key, values in extra.items() for value in values]
    return tuple((name, str(value)) for name, value in headers if value)


def _token_refresh_s(expiry: datetime | None) -> float | None:
    if expiry is None:
        return None
    return max(_MIN_REFRESH_S, _REFRESH_FRACTION * (expiry - datetime.now(UTC)).total_seconds())


def _file_refresh_s(user: Mapping[str, Any]) -> float | None:
    return FILE_REFRESH_S if {"tokenFile", "auth-provider", "client-certificate"} & user.keys() else None


async def _load_service_account() -> Login:
    try:
        return read_service_account()
    except (OSError, KeyError, ValueError) as error:
        raise AccessError(f"this is a pod in a cluster, but its service account cannot be read: {error}") from error


def _proxy_for(server: str) -> str:
    """The proxy of the environment for this server: HTTPS_PROXY or HTTP_PROXY, unless NO_PROXY matches.

    NO_PROXY has the syntax of other Kubernetes clients: names, domains, addresses, and CIDR ranges such as 10.0.0.0/8.
    """
    url = urlsplit(server)
    host = url.hostname or ""
    exceptions = [each.strip() for each in _environment("NO_PROXY").split(",")]
    if _is_local(host) or any(_is_exempt(each, host=host, port=url.port) for each in exceptions if each):
        return ""
    return _environment(f"{url.scheme}_proxy")


def _environment(variable: str) -> str:
    """In upper or lower case."""
    return os.environ.get(variable.upper()) or os.environ.get(variable.lower(), "")


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _is_exempt(exception: str, *, host: str, port: int | None) -> bool:
    """Whether an entry of NO_PROXY matches this host."""
    address = _address(host)
    if address is not None:
        try:
            return address in ip_network(exception, strict=False)
        except ValueError:
            pass
    name, _, only_port = exception.lower().partition(":")
    if only_port and only_port != str(port):
        return False
    domain = name.removeprefix("*").removeprefix(".")
    return name == "*" or (bool(domain) and (host == domain or host.endswith(f".{domain}")))


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _tls(login: Login) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=login.ca_file or None)
    # Certificate authorities of clusters often lack extensions that newer Pythons require by default.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if login.cert_file:
        context.load_cert_chain(login.cert_file, login.key_file or None)
    if not login.is_verified:
        log.warning("insecure-skip-tls-verify in the kubeconfig: the server is not verified", server=login.server)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
