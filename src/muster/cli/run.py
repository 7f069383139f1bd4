"""`muster run`: from what was typed to a scheduler of a real cluster, and back to an exit code."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from muster.adapters.kube.access import AccessError, read_access
from muster.adapters.kube.leader import Times
from muster.cli.errors import BadFiles, UserError
from muster.cli.files import read_text
from muster.config import default_policy, load_policy
from muster.engine.hooks import Policy
from muster.service.process import Settings, serve
from muster.serving.logs import LogFormat, set_up
from muster.serving.pages import BadAddress, read_address
from muster.yaml_marks import InputError, nearest

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_USUAL_NAMESPACE = "kube-system"
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was typed. `lease` None: no leader election; an empty namespace in it: that of the pod."""

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


def schedule(wishes: Wishes) -> int:
    """Everything that was typed is judged before the first word is said to the cluster."""
    style = _style(wishes.log_format)
    settings = _settings(wishes)
    set_up(style)
    return asyncio.run(_scheduled(wishes, settings))


async def _scheduled(wishes: Wishes, settings: Settings) -> int:
    try:
        access = await read_access(wishes.kubeconfig, wishes.context)
    except AccessError as error:
        raise UserError(str(error)) from None
    try:
        return await serve(settings, access)
    except BadAddress as error:
        raise UserError(f"--bind-address: {error}") from None


def _settings(wishes: Wishes) -> Settings:
    if wishes.qps is not None and wishes.qps <= 0:
        raise UserError("--qps: write a number above 0, or leave it out for no limit")
    if wishes.decision_log is not None:
        _try_to_write(wishes.decision_log)
    try:
        address = read_address(wishes.bind_address) if wishes.bind_address else None
    except BadAddress as error:
        raise UserError(f"--bind-address: {error}") from None
    return Settings(
        policy=_policy(wishes.policy),
        address=address,
        lease=None if wishes.lease is None else (wishes.lease[0] or _own_namespace(), wishes.lease[1]),
        times=_times(wishes.lease_times),
        decision_log=wishes.decision_log,
        log_bytes=wishes.log_size * _MIB,
        log_files=wishes.log_files,
        qps=wishes.qps,
    )


def _policy(file: Path | None) -> Policy:
    if file is None:
        return default_policy()
    read_text(file)
    try:
        return load_policy(file)
    except InputError as error:
        raise BadFiles(error.faults) from None


def _times(seconds: tuple[float, float, float]) -> Times:
    try:
        return Times(*seconds)
    except ValueError as error:
        raise UserError(str(error)) from None


def _style(word: str) -> LogFormat:
    try:
        return LogFormat(word)
    except ValueError:
        near = nearest(word, [style.value for style in LogFormat])
        hint = f". Did you mean {near!r}?" if near else ""
        raise UserError(f"--log-format: {word!r} is neither json nor text{hint}") from None


def _own_namespace() -> str:
    try:
        return _POD_NAMESPACE.read_text(encoding="utf-8").strip() or _USUAL_NAMESPACE
    except OSError:
        return _USUAL_NAMESPACE


def _try_to_write(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        raise UserError(f"{path}: the decision log cannot be written: {(error.strerror or str(error)).lower()}") from None
