"""What objects are to say, written when nobody else writes: of each object at once, the newest of each topic, and only news.

A word that could not be written is kept and tried again later, unless there is a newer one by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from muster.adapters.kube.client import ApiError
from muster.adapters.kube.deeds import only_news
from muster.adapters.kube.lanes import Lanes
from muster.adapters.kube.merge import joined, merged
from muster.adapters.kube.mirror import Mirror
from muster.adapters.kube.refs import NODE, POD, Manifest, Ref, Stored
from muster.adapters.kube.scribe import Saying, topic, word_patch
from muster.adapters.kube.sender import CONFLICT, GONE, NotLeading, Sender, is_passing

log = structlog.get_logger(__name__)

MOST_TRIES = 6
_PAUSE_S = 0.5
"""After a batch of which something has to be said again."""

Topics = dict[str, Saying]


class Words:
    """`quiet` is awaited before each batch: it ends when nothing more important is under way."""

    def __init__(
        self,
        sender: Sender,
        mirror: Mirror,
        lanes: Lanes,
        *,
        now: Callable[[], float],
        quiet: Callable[[], Awaitable[None]],
        at_once: int = 8,
    ) -> None:
        self._sender = sender
        self._mirror = mirror
        self._lanes = lanes
        self._now = now
        self._quiet = quiet
        self._at_once = at_once
        self._unsaid: dict[Ref, Topics] = {}
        self._tries: dict[Ref, int] = {}
        self._waiting = asyncio.Event()
        self._all_said = asyncio.Event()
        self._all_said.set()
        self._speaking = 0

    @property
    def pending(self) -> int:
        return len(self._unsaid) + self._speaking

    def add(self, sayings: Iterable[Saying]) -> None:
        for saying in sayings:
            self._unsaid.setdefault(saying.ref, {})[topic(saying)] = saying
        if self._unsaid:
            self._waiting.set()
            self._all_said.clear()

    def beside(self, ref: Ref, present: Stored) -> Manifest | None:
        """What is to be said of an object that somebody is about to write to. Once that is done, it is no news any more."""
        return self._patch(self._unsaid.get(ref, {}), present)

    async def said(self, *, timeout_s: float) -> None:
        """Until nothing is left to say, or so long."""
        if self._all_said.is_set():
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._all_said.wait()
        except TimeoutError:
            return

    async def run(self) -> None:
        """For ever; ends only by being cancelled."""
        while True:
            await self._waiting.wait()
            await self._quiet()
            if not await self._speak(self._taken()):
                await asyncio.sleep(_PAUSE_S)

    def _taken(self) -> dict[Ref, Topics]:
        """The next ones to speak of, in the order in which they were first spoken of."""
        some = {ref: self._unsaid.pop(ref) for ref in list(self._unsaid)[: 8 * self._at_once]}
        if not self._unsaid:
            self._waiting.clear()
        self._speaking = len(some)
        return some

    async def _speak(self, some: dict[Ref, Topics]) -> bool:
        """Was all of it said, or is not worth saying any more?"""
        outcomes = await asyncio.gather(*(self._say(ref, topics) for ref, topics in some.items()), return_exceptions=True)
        self._speaking = 0
        failed = {ref: error for ref, error in zip(some, outcomes, strict=True) if error is not None}
        again = [ref for ref, error in failed.items() if self._is_worth_repeating(ref, error)]
        for ref in again:
            # What is to be said since then is newer.
            self._unsaid[ref] = {**some[ref], **self._unsaid.get(ref, {})}
            self._waiting.set()
        for ref in some.keys() - set(again):
            self._tries.pop(ref, None)
        if not self._unsaid:
            self._all_said.set()
        return not again

    def _is_worth_repeating(self, ref: Ref, error: BaseException) -> bool:
        if isinstance(error, NotLeading):
            return True
        if isinstance(error, ApiError) and error.status == GONE:
            return False
        tries = self._tries[ref] = self._tries.get(ref, 0) + 1
        passing = isinstance(error, ApiError) and (is_passing(error) or error.status == CONFLICT)
        if not passing or tries >= MOST_TRIES:
            log.warning("a status could not be written", kind=ref.kind, name=ref.title, error=str(error), tries=tries)
        return passing and tries < MOST_TRIES

    async def _say(self, ref: Ref, topics: Topics) -> None:
        async with self._lanes.place(ref):
            present = self._mirror.peek(ref)
            patch = None if present is None else self._patch(topics, present)
            if present is None or patch is None:
                return
            uid, by_key = self._mirror.uid_of(ref), ref[:2] in (POD, NODE)
            version = "" if by_key else self._mirror.version_of(ref)
            try:
                answer = await self._sender.patch(ref, only_news(patch, present) if by_key else patch, uid=uid, version=version)
            except ApiError as error:
                if error.status == CONFLICT:
                    self._mirror.learn(ref[:2], await self._sender.get(ref))
                raise
            self._mirror.learn(ref[:2], answer)

    def _patch(self, topics: Topics, present: Stored) -> Manifest | None:
        """All that is to be said in one patch; None where nothing of it is new."""
        whole: Manifest = {}
        for saying in topics.values():
            patch = word_patch(saying, merged(present, whole), now=self._now())
            whole = joined(whole, patch or {})
        return None if merged(present, whole) is present else whole
