"""A real API server as a place for stories that take their time, with `muster run` as a process that may die at any write.

Steps of a story wait until the cluster is at rest: a scheduler runs and is ready, it writes nothing and has nothing to write, and
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

from tests.kube.gate import Asked
from tests.kube.ground import Ground
from tests.kube.nursery import Child, Nursery

from muster.adapters.kube.decode import Decoder
from muster.adapters.kube.refs import Manifest
from muster.adapters.kube.resources import WATCHED
from muster.adapters.sim.hands import Write
from muster.lab.servers import Servers
from muster.model.effects import Effect
from muster.model.events import Event, Seen
from muster.scenario.crashes import has_claim

_QUIET_S = 0.7
_LONG_QUIET_S = 1.3
"""While claims are open or somebody leaves, the scheduler looks once in a second, whatever happens."""
_SOON_S = 8.0
_REST_S = 60.0
_POLL_S = 0.05
_PATIENCE_S = 20.0
_LOOK_S = 0.3


class Fate(Protocol):
    """Says at which write the scheduler dies. Asked before each reaches the server, and again when the server has done it."""

    def strikes(self, asked: Asked, *, is_done: bool) -> bool: ...


class Doom(NamedTuple):
    """At this write the scheduler dies: before it reaches the server, or after, before anybody hears of it."""

    number: int
    is_done: bool

    def strikes(self, asked: Asked, *, is_done: bool) -> bool:
        return (asked.number, is_done) == (self.number, self.is_done)

    def __str__(self) -> str:
        return f"{'after' if self.is_done else 'before'} write {self.number}"


class NotAtRest(Exception):
    """Something goes on and on, or hangs."""


class RealTime(Ground):
    """The venue of one story. Nobody schedules before `start`."""

    def __init__(
        self, servers: Servers, nursery: Nursery, folder: Path, *, options: Iterable[str] = (), fate: Fate | None = None
    ) -> None:
        super().__init__(servers, nursery, folder, one_by_one=True)
        self._options = tuple(options)
        self._fate = fate
        self._is_waiting = False
        self._is_rested = False
        self.undone: Callable[[], object] = lambda: None
        """What somebody who looked at the cluster now would still do, if anything."""
        self.died_at: Asked | None = None
        self.child: Child | None = None
        self.lives = 0

    def __enter__(self) -> RealTime:
        super().__enter__()
        self.gate.before, self.gate.after = self._before, self._after
        return self

    # -- dying -----------------------------------------------------------------------------------------------------------------

    async def _before(self, asked: Asked) -> bool:
        return self._lives_on(asked, is_done=False)

    async def _after(self, asked: Asked) -> bool:
        return self._lives_on(asked, is_done=True)

    def _lives_on(self, asked: Asked, *, is_done: bool) -> bool:
        """In the gate's thread, in the middle of this write. Once it has struck, nothing else of this life gets through."""
        if not asked.is_write or self._fate is None or not self._fate.strikes(asked, is_done=is_done):
            return True
        assert self.child is not None
        # Whoever finds it dead knows why.
        self.died_at, self._fate = asked, None
        self.gate.shut(asked.door)
        self.child.kill()
        return False

    # -- the scheduler ---------------------------------------------------------------------------------------------------------

    @property
    def _door(self) -> str:
        return f"life-{self.lives}"

    def start(self) -> None:
        self.lives += 1
        self._is_rested = False
        self.child = self.scheduler(self._door, "--no-leader-election", *self._options)

    def restart(self) -> None:
        assert self.child is not None
        self.child.kill()
        self.background.do(self.gate.close(self._door))
        self.start()

    @property
    def is_dead(self) -> bool:
        return self.child is None or not self.child.is_alive

    def _revive(self) -> None:
        if self.child is None or self.child.is_alive:
            return
        if self.died_at is None or self.died_at.door != self._door:
            raise NotAtRest(f"the scheduler ended by itself: {self.child.lines()[-3:]}")
        self.background.do(self.gate.close(self._door))
        self.start()

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """What happens in here the scheduler sees all at once."""
        self._is_rested = False
        child = self.child
        if child is None or not child.is_alive:
            yield
            return
        child.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            child.signal(signal.SIGCONT)

    # -- rest ------------------------------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Whoever rests already goes on doing so."""
        if not self._is_rested:
            self._come_to_rest()
            self._is_rested = True

    def _come_to_rest(self) -> None:
        begun = quiet_since = time.monotonic()
        deadline = begun + _REST_S
        while True:
            why = self._unrest()
            now = time.monotonic()
            if why:
                quiet_since = now
            quiet_s = _LONG_QUIET_S if self._is_waiting else _QUIET_S
            if not why and now - max(quiet_since, self.gate.last_at) > quiet_s:
                # A machine with other things to do may be slow; but what is never done must come out as a difference.
                if now > begun + _PATIENCE_S or not self.undone():
                    return
                quiet_since = now - quiet_s + _LOOK_S
            if now > deadline:
                raise NotAtRest(why or "it writes again and again")
            time.sleep(_POLL_S)

    def _unrest(self) -> str:
        """Why the cluster is not at rest, if it is not."""
        self._revive()
        due = self.kubelets.next_at()
        if not self.kubelets.is_idle or (due is not None and due - time.time() < _SOON_S):
            return "kubelets have something to do"
        if self.child is None:
            return ""
        if not self.child.is_ready:
            return "the scheduler is not ready"
        try:
            figures = self.child.figures("muster_pending_writes", "muster_inbox_objects")
        except OSError:
            return "the scheduler does not answer"
        if busy := [name for name, value in figures.items() if value]:
            return f"the scheduler is busy: {', '.join(busy)}"
        self._is_waiting = any(has_claim(pod) for pod in self.listed("Pod"))
        return ""

    # -- the venue of a story --------------------------------------------------------------------------------------------------

    def apply(self, manifest: Mapping[str, Any]) -> Manifest:
        return self.user.apply(manifest)

    def patch(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Manifest:
        return self.user.patch(kind, namespace, name, patch)

    def delete(self, kind: str, namespace: str, name: str, *, for_good: bool = False) -> None:
        self.user.delete(kind, namespace, name, for_good=for_good)

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return self.user.get(kind, namespace, name)

    def listed(self, kind: str) -> list[Manifest]:
        return self.user.listed(kind)

    def fail_node(self, name: str, *, gone: bool = False, stuck: bool = False) -> None:
        self.tell(lambda kubelets: kubelets.fail_node(name, gone=gone, stuck=stuck))

    def return_node(self, name: str) -> None:
        self.tell(lambda kubelets: kubelets.return_node(name))

    def fail_bind(self, pod: str, *, times: int = 1) -> None:
        raise NotImplementedError("a deed that fails once does not fail again for the next scheduler")

    def fail_evict(self, pod: str, *, times: int = 1) -> None:
        raise NotImplementedError("a deed that fails once does not fail again for the next scheduler")

    @property
    def now(self) -> float:
        return time.time()

    def advance(self, seconds: float) -> None:
        """Time alone matters only to claims: where none is open, nobody waits for it to pass."""
        until = time.monotonic() + seconds
        self.rest()
        written = len(self.gate.writes)
        while self._is_waiting and time.monotonic() < until:
            time.sleep(_POLL_S)
            if self._unrest() or len(self.gate.writes) > written:
                self._is_rested = False
        self.rest()

    def next_event_at(self) -> float | None:
        return self.kubelets.next_at()

    @property
    def writes(self) -> list[Write]:
        return []

    def events(self) -> list[Event]:
        return []

    def relist(self) -> list[Event]:
        return []

    def everything(self) -> list[Event]:
        decoder = Decoder(("muster",))
        kinds = [f"{one.kind}.{one.group}" if one.group else one.kind for one in WATCHED]
        found = [decoder.decode(one) for kind in kinds for one in self.listed(kind)]
        return [Seen(thing) for thing in found if thing is not None]

    def execute(self, effects: Iterable[Effect], *, stop_after: int | None = None) -> None:
        raise NotImplementedError("the scheduler is another process")


@contextmanager
def cleaner(kubeconfig: Path) -> Iterator[None]:
    """Somebody else's operator, as a process of its own: pods that are marked for a soft eviction and say when go then."""
    process = subprocess.Popen(
        [sys.executable, "-m", "muster.lab.cleaner", "--kubeconfig", str(kubeconfig)], stdout=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
