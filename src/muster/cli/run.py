"""`muster run`: turns the options into settings of the scheduling service, and runs it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from muster.cli.errors import UserError, file_error
from muster.cli.text_files import read_text
from muster.config import default_policy, load_policy
from muster.engine.hooks import Policy
from muster.kube.watch.access import AccessError, read_access
from muster.kube.watch.leader_election import LeaseTiming
from muster.private_file import open_private
from muster.service.log_setup import LogFormat, set_up_logging
from muster.service.probe_server import BadAddress, read_address
from muster.service.process import ServiceSettings, serve
from muster.yaml_positions import nearest

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT_NAMESPACE = "kube-system"
_MIB = 2**20


def run_scheduler(settings: ServiceSettings, *, kubeconfig: Path | None, context: str, log_format: str) -> int:
    set_up_logging(_log_format(log_format))
    return asyncio.run(_serve(settings, kubeconfig, context))


async def _serve(settings: ServiceSettings, kubeconfig: Path | None, context: str) -> int:
    try:
        return await serve(settings, await read_access(kubeconfig, context))
    except AccessError as error:
        raise UserError(str(error)) from None
    except BadAddress as error:
        raise UserError(f"--bind-address: {error}") from None


def service_settings(
    *,
    policy: Path | None,
    bind_address: str,
    lease: tuple[str, str] | None,
    namespace: str,
    lease_times: tuple[float, float, float],
    decision_log: Path | None,
    log_size: int,
    log_files: int,
    queue_metrics: bool,
) -> ServiceSettings:
    """All options are validated before the first request to the cluster. An empty namespace: the pod's own."""
    if decision_log is not None:
        _check_writable(decision_log)
    try:
        address = read_address(bind_address) if bind_address else None
    except BadAddress as error:
        raise UserError(f"--bind-address: {error}") from None
    return ServiceSettings(
        policy=_policy(policy),
        address=address,
        lease=None if lease is None else (lease[0] or _own_namespace(), lease[1]),
        namespace=namespace or _own_namespace(),
        timing=_times(lease_times),
        decision_log=decision_log,
        log_bytes=log_size * _MIB,
        log_files=log_files,
        queue_metrics=queue_metrics,
    )


def _policy(file: Path | None) -> Policy:
    if file is None:
        return default_policy()
    read_text(file)
    return load_policy(file)


def _times(seconds: tuple[float, float, float]) -> LeaseTiming:
    try:
        return LeaseTiming(*seconds)
    except ValueError as error:
        raise UserError(str(error)) from None


def _log_format(text: str) -> LogFormat:
    try:
        return LogFormat(text)
    except ValueError:
        near = nearest(text, [log_format.value for log_format in LogFormat])
        hint = f". Did you mean {near!r}?" if near else ""
        raise UserError(f"--log-format: {text!r} is neither json nor text{hint}") from None


def _own_namespace() -> str:
    try:
        return _POD_NAMESPACE.read_text(encoding="utf-8").strip() or _DEFAULT_NAMESPACE
    except OSError:
        return _DEFAULT_NAMESPACE


def _check_writable(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        open_private(path, "ab").close()
    except OSError as error:
        raise file_error(path, error, why="the decision log cannot be written: ") from None
