"""`muster run`: turns the options into settings of the scheduling service, and runs it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from muster.cli.errors import InvalidFiles, UserError
from muster.cli.scenario_files import read_text
from muster.config import default_policy, load_policy
from muster.engine.hooks import Policy
from muster.kube.watch.access import AccessError, read_access
from muster.kube.watch.leader_election import LeaseTiming
from muster.service.log_setup import LogFormat, set_up_logging
from muster.service.probe_server import BadAddress, read_address
from muster.service.process import ServiceSettings, serve
from muster.yaml_positions import InputError, nearest

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT_NAMESPACE = "kube-system"
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The command's options. `lease` None: no leader election; an empty namespace in it: the pod's own."""

    kubeconfig: Path | None
    context: str
    policy: Path | None
    bind_address: str
    lease: tuple[str, str] | None
    lease_times: tuple[float, float, float]
    decision_log: Path | None
    log_size: int
    log_files: int
    log_format: str
    qps: float | None


def run_scheduler(options: RunOptions) -> int:
    """All options are validated before the first request to the cluster."""
    log_format = _log_format(options.log_format)
    settings = _settings(options)
    set_up_logging(log_format)
    return asyncio.run(_serve(options, settings))


async def _serve(options: RunOptions, settings: ServiceSettings) -> int:
    try:
        access = await read_access(options.kubeconfig, options.context)
    except AccessError as error:
        raise UserError(str(error)) from None
    try:
        return await serve(settings, access)
    except BadAddress as error:
        raise UserError(f"--bind-address: {error}") from None


def _settings(options: RunOptions) -> ServiceSettings:
    if options.qps is not None and options.qps <= 0:
        raise UserError("--qps: must be above 0; without it there is no limit")
    if options.decision_log is not None:
        _check_writable(options.decision_log)
    try:
        address = read_address(options.bind_address) if options.bind_address else None
    except BadAddress as error:
        raise UserError(f"--bind-address: {error}") from None
    return ServiceSettings(
        policy=_policy(options.policy),
        address=address,
        lease=None if options.lease is None else (options.lease[0] or _own_namespace(), options.lease[1]),
        timing=_times(options.lease_times),
        decision_log=options.decision_log,
        log_bytes=options.log_size * _MIB,
        log_files=options.log_files,
        qps=options.qps,
    )


def _policy(file: Path | None) -> Policy:
    if file is None:
        return default_policy()
    read_text(file)
    try:
        return load_policy(file)
    except InputError as error:
        raise InvalidFiles(error.faults) from None


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
        path.open("ab").close()
    except OSError as error:
        raise UserError(f"{path}: the decision log cannot be written: {(error.strerror or str(error)).lower()}") from None
