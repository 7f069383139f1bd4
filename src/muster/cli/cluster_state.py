"""A cluster at one moment, as the scheduler reads it: from a scenario, a snapshot, kubectl's JSON or YAML, or the cluster itself.

Objects that an API server wrote are decoded as they are, without a simulated cluster: that is the difference between seconds and
minutes where there are many.
"""

from __future__ import annotations

import gc
import io
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from muster.cli.cluster_file import CLUSTER_SUFFIXES, newest_time, plain_manifests, read_cluster, read_text_or_gzip
from muster.cli.errors import UserError
from muster.cli.progress_bar import ProgressBar
from muster.cli.scenario_files import read_scenarios
from muster.cli.text_files import read_text
from muster.cli.text_format import count, join_names
from muster.config import default_policy, load_policy
from muster.decision_log import DecisionLogWriter
from muster.engine.hooks import Policy
from muster.forecast.start_time import RunTimes, run_times_of
from muster.kube.read.decoder import BadObject, Decoder
from muster.kube.read.names import DEFAULT_SCHEDULER
from muster.literals import duration as parse_duration
from muster.model.events import ClusterObject, Upsert
from muster.model.pod import Pod
from muster.scenario.loader import policy_of
from muster.scenario.scenario_runner import ScenarioRunner, run
from muster.scenario.syntax_tree import Scenario
from muster.sim.api_kinds import KINDS
from muster.sim.virtual_clock import VIRTUAL_START
from muster.snapshot.snapshot_file import captured_at

LOG_SUFFIX = ".jsonl"
_CYCLE_LINE = b'{"cycle":'
_SELDOM = (200_000, 50, 50)
"""When the collector runs after a cluster was read: what a question makes is garbage only in small part."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Where the cluster is, and how it is looked at."""

    cluster: str = ""
    """A file; empty for the current context of the kubeconfig."""
    policy: Path | None = None
    after_steps: bool = False
    scheduler: str = ""
    """The scheduler whose pods are looked at in place of the policy's own."""
    kubeconfig: Path | None = None
    context: str = ""
    quiet: bool = False
    at: str = ""
    """A time in a decision log or a scenario."""
    to_the_end: bool = False
    """Of a scenario all steps are run, and what is decided in them is kept."""
    history: Path | None = None
    """A decision log that says for how long pods ran."""
    run_time: str = ""
    """For how long pods run of which nobody knows."""
    seconds: float = 2.0
    """How long it may take to find out what is not asked of this very moment."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    objects: tuple[ClusterObject, ...]
    now: float
    policy: Policy
    notes: tuple[str, ...] = ()
    """What a person should know of how it was read."""
    logged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What was decided about each gang before, where that is known."""
    run_times: RunTimes = field(default_factory=RunTimes)


def read_cluster_state(options: ClusterOptions) -> ClusterState:
    if options.policy is not None:
        read_text(options.policy)
    with _without_collections():
        if not options.cluster:
            state = _live_state(options)
        else:
            state = _state_of_file(options) or _state_of_scenario(_scenario(options.cluster), options)
        return _with_notes(_with_run_times(state, options), options)


def _with_run_times(state: ClusterState, options: ClusterOptions) -> ClusterState:
    found = state.run_times
    if options.history is not None:
        from muster.cli.logged_cluster import read_logged_cluster

        try:
            with options.history.open("rb") as lines:
                found = run_times_of(read_logged_cluster(lines, file=str(options.history), at="").ended)
        except OSError as error:
            raise UserError(f"--history: {options.history}: {error.strerror}") from None
    if options.run_time:
        try:
            found = replace(found, assumed=parse_duration(options.run_time))
        except ValueError:
            raise UserError(f"--run-time: {options.run_time!r} is no duration; write for example 4h or 1h30m") from None
    return replace(state, run_times=found)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Nothing that is read becomes garbage, so searching a million new objects for it again and again is a waste: while they are
    made, and later, until a cluster is read anew."""
    enabled = gc.isenabled()
    gc.unfreeze()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*_SELDOM)
        if enabled:
            gc.enable()


def _policy(options: ClusterOptions, scenario: Scenario | None = None) -> Policy:
    if options.policy is not None:
        policy = load_policy(options.policy)
    else:
        policy = policy_of(scenario) if scenario is not None else default_policy()
    if not options.scheduler:
        return policy
    settings = replace(policy.settings, scheduler_names=(options.scheduler,))
    return Policy(policy.plugins, policy.actions, settings=settings, source=policy.source)


def _with_notes(state: ClusterState, options: ClusterOptions) -> ClusterState:
    others = Counter(obj.scheduler for obj in state.objects if isinstance(obj, Pod) and is_served_by_another(obj))
    notes = tuple(
        f"{count(pods, 'pod')} of the scheduler {name} count as used and are not evicted; --as-scheduler {name} looks through them"
        for name, pods in sorted(others.items())
    )
    if options.scheduler and not any(isinstance(obj, Pod) and obj.ours for obj in state.objects):
        notes = (f"no pod of this cluster names the scheduler {options.scheduler} (--as-scheduler)", *notes)
    return replace(state, notes=(*state.notes, *notes))


def is_served_by_another(pod: Pod) -> bool:
    return not pod.ours and not pod.finished and not pod.protected and pod.scheduler not in ("", DEFAULT_SCHEDULER)


# -- files -------------------------------------------------------------------------------------------------------------------------


class _TypeMeta(msgspec.Struct):
    kind: str = ""
    apiVersion: str = ""


class _List(msgspec.Struct):
    metadata: dict[str, Any] = {}
    items: list[msgspec.Raw] = []


def _state_of_file(options: ClusterOptions) -> ClusterState | None:
    """None where the file is a scenario, or where it was written by hand: then an API server has to set the defaults."""
    path = Path(options.cluster)
    if not path.is_file():
        return None
    if path.suffix == LOG_SUFFIX:
        with path.open("rb") as lines:
            return _state_of_log(lines, options)
    text, policy = read_text_or_gzip(path), _policy(options)
    if text.lstrip()[:1] == "{":
        try:
            found = msgspec.json.decode(text, type=_List)
        except msgspec.DecodeError:
            return None
        objects, written_at = _decoded_raw(found.items, policy), captured_at({"metadata": found.metadata})
    else:
        manifests = plain_manifests(text)
        if manifests is None:
            return None
        objects, written_at = _decoded(manifests, policy), None
    if not objects or any(isinstance(obj, Pod) and not obj.uid for obj in objects):
        return None
    _refuse_time(options)
    return ClusterState(tuple(objects), written_at or newest_time(text) or VIRTUAL_START, policy)


def _decoded_raw(items: Iterable[msgspec.Raw], policy: Policy) -> list[ClusterObject]:
    decoder, type_meta = Decoder(policy.settings.scheduler_names), msgspec.json.Decoder(_TypeMeta)
    found = []
    for item in items:
        try:
            meta = type_meta.decode(item)
            found.append(decoder.decode_as((meta.apiVersion.rpartition("/")[0], meta.kind), item))
        except (BadObject, msgspec.DecodeError):
            continue
    return [obj for obj in found if obj is not None]


def _decoded(manifests: Iterable[dict[str, Any]], policy: Policy) -> list[ClusterObject]:
    return _decoded_raw((msgspec.Raw(msgspec.json.encode(manifest)) for manifest in manifests), policy)


def _scenario(argument: str) -> Scenario:
    path = Path(argument)
    if path.is_dir():
        raise UserError(f"--cluster: {argument} is a folder; name one file: a scenario, a snapshot, or what kubectl printed")
    if path.is_file() and (cluster := read_cluster(path)) is not None:
        return cluster
    scenarios = read_scenarios([argument])
    if len(scenarios) > 1:
        lines = ", ".join(str(each.line) for each in scenarios)
        hint = f"select one, such as {argument}:{scenarios[0].line}"
        raise UserError(f"{argument} contains {len(scenarios)} scenarios, at lines {lines}: {hint}")
    return scenarios[0]


def _state_of_log(lines: Iterable[bytes], options: ClusterOptions) -> ClusterState:
    from muster.cli.logged_cluster import read_logged_cluster

    found = read_logged_cluster(lines, file=options.cluster, at=options.at)
    policy = _policy(options) if options.policy is not None or found.policy is None else found.policy
    logged = {gang: tuple(texts) for gang, texts in found.decisions.items()}
    notes = (found.note,) if found.note else ()
    return ClusterState(tuple(found.objects.values()), found.now, policy, notes, logged, run_times_of(found.ended))


def _state_of_scenario(scenario: Scenario, options: ClusterOptions) -> ClusterState:
    if options.policy is not None:
        scenario = replace(scenario, policy=options.policy)
    if (options.to_the_end or options.at) and not options.scheduler and (log := _played(scenario, quiet=options.quiet)):
        return _state_of_log(io.BytesIO(log), options)
    _refuse_time(options)
    runner = ScenarioRunner(scenario)
    runner.set_up()
    for step in scenario.steps if options.after_steps else ():
        runner.run_step(step)
    policy = _policy(options, scenario)
    if options.scheduler:
        kinds = (f"{kind}.{group}" if group else kind for group, kind in KINDS)
        objects = _decoded((manifest for kind in kinds for manifest in runner.cluster.listed(kind)), policy)
    else:
        objects = [event.obj for event in runner.cluster.list_events() if isinstance(event, Upsert)]
    return ClusterState(tuple(objects), runner.cluster.now, policy)


def _refuse_time(options: ClusterOptions) -> None:
    if options.at:
        shown = options.cluster or "the cluster of the kubeconfig"
        within = "a decision log" if options.scheduler else "a decision log, or in a scenario with cycles"
        raise UserError(f"--at: {shown} is known at one moment only; a time is in {within}")


def played_log(options: ClusterOptions) -> bytes:
    """The decision log of a scenario; nothing where the file is none, or has no steps that run."""
    path = Path(options.cluster)
    if path.suffix in CLUSTER_SUFFIXES or (path.is_file() and read_cluster(path) is not None):
        return b""
    scenario = _scenario(options.cluster)
    return _played(scenario if options.policy is None else replace(scenario, policy=options.policy), quiet=options.quiet)


def _played(scenario: Scenario, *, quiet: bool) -> bytes:
    """The decision log of all steps; nothing where none of them is a cycle."""
    log = io.BytesIO()
    with ProgressBar(quiet=quiet) as progress:
        progress.begin(scenario.name)
        run(scenario, observer=progress, log=DecisionLogWriter(log))
    return log.getvalue() if _CYCLE_LINE in log.getvalue() else b""


# -- a live cluster ----------------------------------------------------------------------------------------------------------------


def _live_state(options: ClusterOptions) -> ClusterState:
    from muster.cli.live_objects import read_live_objects

    _refuse_time(options)
    policy = _policy(options)
    objects, unread = read_live_objects(
        Decoder(policy.settings.scheduler_names), kubeconfig=options.kubeconfig, context=options.context, quiet=options.quiet
    )
    notes = (f"not read, because this user may not: {join_names(unread, limit=8)}",) if unread else ()
    return ClusterState(tuple(objects), time.time(), policy, notes)
