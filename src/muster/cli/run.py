"""`muster run`: turns the options into settings of the scheduling service, and runs it."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path

from muster.cli.errors import UserError, file_error
from muster.cli.text_files import read_text
from muster.config import default_policy, load_policy
from muster.engine.hooks import Policy
from muster.kube.watch.access import AccessError, read_access
from muster.kube.watch.leader_election import LeaseTiming
from muster.literals import duration
from muster.private_file import open_private
from muster.service.log_setup import LogFormat, set_up_logging
from muster.service.process import ApiSettings, ServiceSettings, serve
from muster.service.shadow import ShadowSettings, shadow_policy
from muster.web.http_server import BadAddress, read_address
from muster.yaml_positions import nearest

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT_NAMESPACE = "kube-system"
_MIB = 2**20
_LEAST_PERIOD_S = 1.0


@dataclass(frozen=True, slots=True)
class ShadowOptions:
    is_on: bool
    schedulers: tuple[str, ...]
    period: str
    report: Path | None


def run_scheduler(settings: ServiceSettings, *, kubeconfig: Path | None, context: str, log_format: str) -> int:
    set_up_logging(_log_format(log_format))
    return asyncio.run(_serve(settings, kubeconfig, context))


async def _serve(settings: ServiceSettings, kubeconfig: Path | None, context: str) -> int:
    try:
        return await serve(settings, await read_access(kubeconfig, context))
    except AccessError as error:
        raise UserError(str(error)) from None
    except BadAddress as error:
        own = settings.api is not None and f"{settings.api.address[0]}:{settings.api.address[1]}:" in str(error)
        raise UserError(f"{'--api-address' if own else '--bind-address'}: {error}") from None


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
    api: tuple[str, Path | None, Path | None],
    shadow: ShadowOptions,
) -> ServiceSettings:
    """All options are validated before the first request to the cluster. An empty namespace: the pod's own."""
    _check_shadow(shadow, has_log=decision_log is not None, has_api=bool(api[0]))
    if decision_log is not None:
        _check_writable(decision_log, "the decision log")
    address = _address("--bind-address", bind_address) if bind_address else None
    return ServiceSettings(
        policy=shadow_policy(_policy(policy), scheduler_names=shadow.schedulers) if shadow.is_on else _policy(policy),
        address=address,
        lease=None if lease is None or shadow.is_on else (lease[0] or _own_namespace(), lease[1]),
        namespace=namespace or _own_namespace(),
        timing=_times(lease_times),
        decision_log=decision_log,
        log_bytes=log_size * _MIB,
        log_files=log_files,
        queue_metrics=queue_metrics,
        api=_api_settings(*api),
        shadow=ShadowSettings(_period_s(shadow.period), shadow.report) if shadow.is_on else None,
    )


def _check_shadow(shadow: ShadowOptions, *, has_log: bool, has_api: bool) -> None:
    if not shadow.is_on:
        if shadow.schedulers or shadow.report is not None:
            raise UserError("--as-scheduler and --shadow-report are for --shadow: else the policy has the names")
        return
    if has_log:
        raise UserError("--decision-log: --shadow decides nothing that could be replayed")
    if has_api:
        raise UserError("--api-address: --shadow sends no write request, and reviews of tokens are some; use kubectl port-forward")
    if shadow.report is not None:
        _check_writable(shadow.report, "the report")


def _period_s(text: str) -> float:
    try:
        period_s = duration(text)
    except ValueError as error:
        raise UserError(f"--shadow-period: {error}") from None
    if period_s < _LEAST_PERIOD_S:
        raise UserError(f"--shadow-period: {text}: at least {_LEAST_PERIOD_S:g} s pass between two reports")
    return period_s


def _api_settings(text: str, certificate: Path | None, key: Path | None) -> ApiSettings | None:
    if not text:
        return None
    address = _address("--api-address", text)
    if certificate is None or key is None:
        raise UserError("--api-address: other machines are answered with TLS only: name --api-certificate and --api-key")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except OSError as error:
        raise UserError(f"--api-certificate {certificate}, --api-key {key}: {error.strerror or error}") from None
    return ApiSettings(address, certificate, key)


def _address(name: str, text: str) -> tuple[str, int]:
    try:
        return read_address(text)
    except BadAddress as error:
        raise UserError(f"{name}: {error}") from None


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


def _check_writable(path: Path, what: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        open_private(path, "ab").close()
    except OSError as error:
        raise file_error(path, error, why=f"{what} cannot be written: ") from None
