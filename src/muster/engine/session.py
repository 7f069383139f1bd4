"""One cycle's view for the engine and its plugins: the world, the policy, and how the plugins' answers combine."""

from __future__ import annotations

from collections.abc import Sequence

from muster.engine.columns import KindColumns
from muster.engine.hooks import WHOLE_CLUSTER, Ask, Comparable, Domain, Policy
from muster.model.effects import YES, Effect, Verdict
from muster.model.gang import Gang
from muster.model.pod import Kind, Pod
from muster.state.lifecycle import is_half_bound
from muster.state.trial import Trial
from muster.state.world import World

# A refused gang is tried again this often, whatever happens.
RETRY_S = 300.0


class Session:
    def __init__(self, world: World, policy: Policy) -> None:
        self.world = world
        self.policy = policy
        self.now = world.now
        self.verdicts: dict[str, Verdict] = {}
        self.stats: dict[str, int] = {}
        self.refused: dict[str, Verdict] = {}
        """Gangs that were attempted in this cycle and did not get what they need, in their order, by key."""
        self.extra: list[Effect] = []
        """Effects that no move stands for."""

    def prepare(self) -> None:
        for plugin in self.policy.prepares:
            plugin.prepare(self)

    def trial(self, why: str, *, cause: str, for_gang: str = "") -> Trial:
        return Trial(self.world, why=why, cause=cause, for_gang=for_gang)

    def count(self, what: str, by: int = 1) -> None:
        self.stats[what] = self.stats.get(what, 0) + by

    # -- verdicts ----------------------------------------------------------------------------------------------------------

    def is_settled(self, gang: Gang) -> bool:
        """Was this gang refused for a reason that nothing since has touched? Then another attempt is a waste."""
        memory = self.world.attempts[gang.key]
        verdict = memory.verdict
        if verdict is None or verdict.ok:
            return False
        if self.now >= memory.tried_at + RETRY_S or (verdict.at is not None and self.now >= verdict.at):
            return False
        versions = self.world.versions
        return all(versions.get(wake, 0) == seen for wake, seen in zip(verdict.wakes, memory.versions, strict=True))

    def judge(self, gang: Gang, verdict: Verdict) -> None:
        """Remember the verdict on a gang and what could change it."""
        memory = self.world.attempts[gang.key]
        if verdict != memory.verdict:
            self.verdicts[gang.key] = verdict
        memory.verdict = verdict
        memory.tried_at = self.now
        memory.versions = tuple(self.world.version(wake) for wake in verdict.wakes)

    # -- combined answers ----------------------------------------------------------------------------------------------------

    def admit(self, ask: Ask) -> Verdict:
        for plugin in self.policy.admits:
            verdict = plugin.admit(self, ask)
            if not verdict.ok:
                return verdict
        return YES

    def domains(self, ask: Ask) -> Sequence[Domain]:
        """The first plugin with an opinion decides. None is no opinion; an empty list is one."""
        for plugin in self.policy.names_domains:
            found = plugin.domains(self, ask)
            if found is not None:
                return found
        return (WHOLE_CLUSTER,)

    def gang_key(self, gang: Gang) -> tuple[Comparable, ...]:
        """A gang that was caught half bound goes before everybody; then the plugins' keys, creation and name."""
        keys = [plugin.gang_key(self, gang) for plugin in self.policy.orders_gangs]
        return (0 if is_half_bound(self.world, gang) else 1, *keys, gang.created, gang.title, gang.key)

    def queue_key(self, queue: str) -> tuple[Comparable, ...]:
        return (*(plugin.queue_key(self, queue) for plugin in self.policy.orders_queues), queue)

    def score_domain(self, ask: Ask, domain: Domain) -> float:
        return sum(p.weight * p.score_domain(self, ask, domain) for p in self.policy.scores_domains)

    def columns(self, pod: Pod, *, soon: bool) -> KindColumns:
        """What the plugins say of every node for this kind of pod, brought up to date."""
        key: tuple[str, int, Kind, bool] = ("kind", id(self.policy), pod.kind, soon)
        found = self.world.memo.get(key)
        if not isinstance(found, KindColumns):
            found = self.world.memo[key] = KindColumns(soon=soon)
        found.refresh(self, pod)
        return found

    def is_entangled(self, pod: Pod) -> bool:
        return any(plugin.entangled(self, pod) for plugin in self.policy.entangles)
