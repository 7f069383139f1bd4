"""Logins that need no program: the service account of a pod, and a kubeconfig with a token, a password or a certificate.

They are what schedulers use, and read here because the official client takes longer to import than all of Muster. Whatever is
unusual about a kubeconfig is left to that client, its faults included.
"""

from __future__ import annotations

import atexit
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from tempfile import mkstemp
from typing import Any, Final

import yaml

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
IN_CLUSTER_VARIABLE: Final = "KUBERNETES_SERVICE_HOST"
_PORT_VARIABLE = "KUBERNETES_SERVICE_PORT"
_CLUSTER_KEYS = {
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
    "tls-server-name",
    "proxy-url",
}
_IMPERSONATION_KEYS = {"as", "as-uid", "as-groups", "as-user-extra"}
_USER_KEYS = {
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "token",
    "tokenFile",
    "username",
    "password",
    *_IMPERSONATION_KEYS,
}


@dataclass(frozen=True, slots=True)
class Login:
    """The server, how it is verified, and who we are. Texts may be empty."""

    server: str
    header: str = field(default="", repr=False)
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    is_verified: bool = True
    server_name: str = ""
    proxy: str = ""
    user: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The user of the kubeconfig."""
    expiry: datetime | None = None
    """Of what a login plugin returned."""


def read_service_account() -> Login:
    """Raises OSError or KeyError where there is none."""
    host, port = os.environ[IN_CLUSTER_VARIABLE], os.environ[_PORT_VARIABLE]
    token, ca_file = (SERVICE_ACCOUNT / "token").read_text().strip(), SERVICE_ACCOUNT / "ca.crt"
    if not token or not ca_file.read_bytes():
        raise OSError(f"the token or the certificate in {SERVICE_ACCOUNT} is empty")
    address = f"[{host}]" if ":" in host else host
    user = {"tokenFile": str(SERVICE_ACCOUNT / "token")}
    return Login(f"https://{address}:{port}", f"Bearer {token}", ca_file=str(ca_file), user=user)


def read_plain_kubeconfig(paths: str, *, context: str) -> Login | None:
    """None if there is more to it than is read here, or if something is wrong with it."""
    files = [file for path in paths.split(os.pathsep) if path and (file := Path(path).expanduser()).exists()]
    if len(files) != 1:
        return None
    try:
        config = yaml.safe_load(files[0].read_bytes())
        chosen = _named(config["contexts"], context or config["current-context"])["context"]
        cluster = _named(config["clusters"], chosen["cluster"])["cluster"]
        user = _named(config["users"], chosen["user"])["user"]
        if not (cluster.keys() <= _CLUSTER_KEYS and user.keys() <= _USER_KEYS):
            return None
        return _login(cluster, user, folder=files[0].absolute().parent)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError):
        return None


def _named(entries: Any, name: Any) -> Any:
    """The only one of this name."""
    (found,) = (entry for entry in entries if entry["name"] == name)
    return found


def _login(cluster: Mapping[str, Any], user: Mapping[str, Any], *, folder: Path) -> Login:
    server = cluster["server"].rstrip("/")
    is_tls = server.startswith("https")
    return Login(
        server,
        _header(user, folder=folder),
        ca_file=_file(cluster, "certificate-authority", folder=folder) if is_tls else "",
        cert_file=_file(user, "client-certificate", folder=folder) if is_tls else "",
        key_file=_file(user, "client-key", folder=folder) if is_tls else "",
        is_verified=not cluster.get("insecure-skip-tls-verify", False),
        server_name=cluster.get("tls-server-name") or "",
        proxy=cluster.get("proxy-url") or "",
        user=user,
    )


def _header(user: Mapping[str, Any], *, folder: Path) -> str:
    if token := user.get("token") or ((folder / user["tokenFile"]).read_text().strip() if user.get("tokenFile") else ""):
        return f"Bearer {token}"
    if "username" in user and "password" in user:
        pair = f"{user['username']}:{user['password']}"
        return f"Basic {b64encode(pair.encode()).decode()}"
    return ""


def _file(entry: Mapping[str, Any], key: str, *, folder: Path) -> str:
    """Data that stands in the kubeconfig comes before a file that it names."""
    if encoded := entry.get(f"{key}-data"):
        return _file_with(encoded)
    if not entry.get(key):
        return ""
    path = folder / entry[key]
    if not path.is_file():
        raise FileNotFoundError(path)
    return str(path)


@cache
def _file_with(encoded: str) -> str:
    """TLS reads certificates from files alone. Only we can read this one, and it goes with the process."""
    descriptor, name = mkstemp(prefix="muster-")
    atexit.register(_remove, name)
    with open(descriptor, "wb") as file:
        file.write(b64decode(encoded))
    return name


def _remove(name: str) -> None:
    with suppress(OSError):
        os.unlink(name)
