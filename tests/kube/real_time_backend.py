"""A real API server as a backend for scenarios that take their time, with `muster run` as a process that may die at any write.

Steps of a scenario wait until the cluster is at rest: a scheduler runs and is ready, writes nothing and has nothing to write, and
nothing happens by itself soon.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.harness.etcd_reset import ResettableServers as Servers
from tests.kube.fork_server import ForkServer, SchedulerProcess
from tests.kube.live_backend import ProcessHarness
from tests.kube.recording_proxy import ProxiedRequest

from muster.kube.read.api_resources import WATCHED
from muster.kube.read.decoder import Decoder
from muster.kube.read.object_references import Manifest
from muster.model.effects import Effect
from muster.model.events import Event, Upsert
from muster.sim.executor import Write

_QUIET_S = 0.7
_LONG_QUIET_S = 1.3
"""While pods are reserved, nominated or terminating, the scheduler looks once in a second, whatever happens."""
_SOON_S = 8.0
_SETTLE_TIMEOUT_S = 240.0
_POLL_S = 0.05
_PATIENCE_S = 60.0
_RECHECK_S = 0.3


class CrashTrigger(Protocol):
    """Says at which write the scheduler dies. Asked before each reaches the server, and again when the server has done it."""

    def fires(self, proxied: ProxiedRequest, *, is_done: bool) -> bool: ...


class CrashPoint(NamedTuple):
    """At this write the scheduler dies: before it reaches the server, or after, before anybody hears of it."""

    number: int
    is_done: bool

    def fires(self, proxied: ProxiedRequest, *, is_done: bool) -> bool:
        return (proxied.number, is_done) == (self.number, self.is_done)

    def __str__(self) -> str:
        return f"{'after' if self.is_done else 'before'} write {self.number}"


class NotSettled(Exception):
    """Something goes on and on, or hangs."""


class RealTimeBackend(ProcessHarness):
    """The backend of one scenario. Nobody schedules before `start`."""

    def __init__(
        self,
        servers: Servers,
        fork_server: ForkServer,
        folder: Path,
        *,
        options: Iterable[str] = (),
        crash_trigger: CrashTrigger | None = None,
    ) -> None:
        super().__init__(servers, fork_server, folder, one_by_one=True)
        self._options = tuple(options)
        self._crash_trigger = crash_trigger
        self._is_waiting = False
        self._is_settled = False
        self.unfinished: Callable[[], object] = lambda: None
        """What somebody who looked at the cluster now would still do, if anything."""
        self.died_at: ProxiedRequest | None = None
        self.process: SchedulerProcess | None = None
        self.starts = 0

    def __enter__(self) -> RealTimeBackend:
        super().__enter__()
        self.proxy.before, self.proxy.after = self._before, self._after
        return self

    # -- dying ---------------------------------------------------------------------------------------------------------------------

    async def _before(self, proxied: ProxiedRequest) -> bool:
        return self._may_proceed(proxied, is_done=False)

    async def _after(self, proxied: ProxiedRequest) -> bool:
        return self._may_proceed(proxied, is_done=True)

    def _may_proceed(self, proxied: ProxiedRequest, *, is_done: bool) -> bool:
        """In the gate's thread, in the middle of this write. Once it has struck, nothing else of this life gets through."""
        if not proxied.is_write or self._crash_trigger is None or not self._crash_trigger.fires(proxied, is_done=is_done):
            return True
        assert self.process is not None
        # Whoever finds it dead knows why.
        self.died_at, self._crash_trigger = proxied, None
        self.proxy.block(proxied.listener)
        self.process.kill()
        return False

    # -- the scheduler -------------------------------------------------------------------------------------------------------------

    @property
    def _listener(self) -> str:
        return f"life-{self.starts}"

    def start(self) -> None:
        self.starts += 1
        self._is_settled = False
        self.process = self.scheduler(self._listener, "--no-leader-election", *self._options)

    def restart(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.background.run(self.proxy.close(self._listener))
        self.start()

    @property
    def is_dead(self) -> bool:
        return self.process is None or not self.process.is_alive

    def _restart_if_killed(self) -> None:
        if self.process is None or self.process.is_alive:
            return
        if self.died_at is None or self.died_at.listener != self._listener:
            raise NotSettled(f"the scheduler ended by itself: {self.process.lines()[-3:]}")
        self.background.run(self.proxy.close(self._listener))
        self.start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens in here the scheduler sees all at once."""
        self._is_settled = False
        process = self.process
        if process is None or not process.is_alive:
            yield
            return
        process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.signal(signal.SIGCONT)

    # -- rest ----------------------------------------------------------------------------------------------------------------------

    def wait_until_settled(self) -> None:
        """Whoever rests already goes on doing so."""
        if not self._is_settled:
            self._wait_until_settled()
            self._is_settled = True

    def _wait_until_settled(self) -> None:
        begun = quiet_since = time.monotonic()
        deadline = begun + _SETTLE_TIMEOUT_S
        quiet_polls = 0
        while True:
            why = self._why_not_settled()
            now = time.monotonic()
            if why:
                quiet_since = now
            quiet_polls = 0 if why or self.proxy.last_at > now - _POLL_S else quiet_polls + 1
            quiet_s = _LONG_QUIET_S if self._is_waiting else _QUIET_S
            # Each poll is a request to the scheduler and one to the server: where both are slow, quiet takes longer to be believed.
            is_quiet = quiet_polls * _POLL_S > quiet_s and now - max(quiet_since, self.proxy.last_at) > quiet_s
            if is_quiet:
                # A machine with other things to do may be slow; but what is never done must come out as a difference.
                if now > begun + _PATIENCE_S or not self.unfinished():
                    return
                quiet_since = now - quiet_s + _RECHECK_S
            if now > deadline:
                raise NotSettled(why or "it writes again and again")
            time.sleep(_POLL_S)

    def _why_not_settled(self) -> str:
        """Why the cluster is not at rest, if it is not."""
        self._restart_if_killed()
        due = self.kubelets.next_at()
        if not self.kubelets.is_idle or (due is not None and due - time.time() < _SOON_S):
            return "kubelets have something to do"
        if self.process is None:
            return ""
        if not self.process.is_ready:
            return "the scheduler is not ready"
        try:
            metrics = self.process.metrics("muster_pending_writes", "muster_watch_backlog_objects")
        except OSError:
            return "the scheduler does not answer"
        if busy := [name for name, value in metrics.items() if value]:
            return f"the scheduler is busy: {', '.join(busy)}"
        self._is_waiting = any((pod.get("status") or {}).get("nominatedNodeName") for pod in self.listed("Pod"))
        return ""

    # -- the backend of a scenario -------------------------------------------------------------------------------------------------

    def apply(self, manifest: Mapping[str, Any]) -> Manifest:
        return self.user.apply(manifest)

    def patch(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Manifest:
        return self.user.patch(kind, namespace, name, patch)

    def delete(self, kind: str, namespace: str, name: str, *, permanently: bool = False) -> None:
        self.user.delete(kind, namespace, name, permanently=permanently)

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return self.user.get(kind, namespace, name)

    def listed(self, kind: str) -> list[Manifest]:
        return self.user.listed(kind)

    def fail_node(self, name: str, *, gone: bool = False, pods_stuck: bool = False) -> None:
        self.on_kubelets(lambda kubelets: kubelets.fail_node(name, gone=gone, pods_stuck=pods_stuck))

    def recover_node(self, name: str) -> None:
        self.on_kubelets(lambda kubelets: kubelets.recover_node(name))

    def fail_bind(self, pod: str, *, times: int = 1) -> None:
        raise NotImplementedError("an effect that fails once does not fail again for the next scheduler")

    def fail_evict(self, pod: str, *, times: int = 1) -> None:
        raise NotImplementedError("an effect that fails once does not fail again for the next scheduler")

    @property
    def now(self) -> float:
        return time.time()

    def advance(self, seconds: float) -> None:
        """Time alone matters only to reservations and nominations: without any, nobody waits for it to pass."""
        until = time.monotonic() + seconds
        self.wait_until_settled()
        written = len(self.proxy.writes)
        while self._is_waiting and time.monotonic() < until:
            time.sleep(_POLL_S)
            if self._why_not_settled() or len(self.proxy.writes) > written:
                self._is_settled = False
        self.wait_until_settled()

    @property
    def writes(self) -> list[Write]:
        return []

    def events(self) -> list[Event]:
        return []

    def relist(self) -> list[Event]:
        return []

    def list_events(self) -> list[Event]:
        decoder = Decoder(("muster",))
        kinds = [f"{one.kind}.{one.group}" if one.group else one.kind for one in WATCHED]
        found = [decoder.decode(one) for kind in kinds for one in self.listed(kind)]
        return [Upsert(thing) for thing in found if thing is not None]

    def execute(self, effects: Iterable[Effect], *, max_writes: int | None = None) -> None:
        raise NotImplementedError("the scheduler is another process")


@contextmanager
def cleaner(kubeconfig: Path) -> Iterator[None]:
    """Somebody else's operator, as a process of its own: pods that are marked for a soft eviction and say when go then."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.harness.soft_eviction_cleaner", "--kubeconfig", str(kubeconfig)], stdout=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
