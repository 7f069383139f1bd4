"""What a plugin may say, and how the answers of several plugins combine.

A plugin is any object with a `name`; it takes part in a hook by having the method. Hooks get the session, which is read-only to
them, and derive all they need from its world: a plugin owns no counters. Hooks over nodes get some rows and answer for exactly
those, as a column.

| hook | answer | combined by |
| --- | --- | --- |
| `prepare` | nothing | each, once a cycle |
| `admit` | Verdict | all must agree; the first refusal is the reason |
| `queue_key`, `gang_key`, `pod_key` | a comparable value | a tuple in the policy's order, then creation and name |
| `quota_fit` | QuotaFit | the least of all; how many more pods like this one its queues take |
| `deserved`, `over_share` | Resources | of `deserved` the first answer, of `over_share` what all agree on |
| `queue_fields` | names and values | all of them; they go to the queue's status |
| `domains` | ordered domains, a refusing Verdict, or None | the first opinion decides; an empty list is a refusal |
| `fill_order` | parts of a domain | the first that names any; one part is filled after the other |
| `score_domain` | float, 0 to 1 | weighted sum, with the ask in place |
| `score_domains` | float column, 0 to 1 | `score_domain` of many domains, as if the ask were in place; saves trying them all |
| `match` | bool column | and; what eviction cannot change; kept per pod signature, without inter-pod terms |
| `prefer` | float column, 0 to 1 | weighted sum; a score that follows from labels and taints alone; kept per pod signature |
| `fit` | bool column | and; what eviction can change; must follow from the rows' own amounts |
| `applies_to` | bool | optional, beside `fit`: False for a pod that it lets onto every node; saves asking |
| `score` | float column, 0 to 1 | weighted sum; must follow from the rows' own amounts |
| `depends` | a tuple of Topics, no method | optional, beside `match`, `prefer`, `fit`, `score`: what else they follow from |
| `has_inter_pod_constraints` | bool | for pods whose place depends on pods of other nodes: the next two are asked |
| `fit_inter_pod`, `score_inter_pod` | as `fit` and `score` | as `fit` and `score` |
| `inter_pod_state`, `inter_pod_key` | an InterPodState; any value | optional: equal pods with equal keys are placed together |
| `slots` | device slots for each of equal pods, or None | the first opinion decides; called as pods are placed |
| `reasons` | a phrase for the rows refused | the first plugin that refuses a row explains it |
| `evictable` | bool column over placed pods | and; False: never a victim of this ask; called once for all candidates of a domain |
| `evictable_at` | float column over placed pods | the earliest time at which a veto of `evictable` ends |
| `allows_eviction` | Verdict | all must agree; called as each unit is taken, with those before it already evicted |
| `may_exceed_budget` | bool column over units | or; units on a node on which more could go than a disruption budget allows |
| `violates_budget` | bool column over units | or; units whose eviction alone would violate a disruption budget |
| `budget_violations` | count | sum; how many victims, taken together, are more than their budgets allow |
| `lost_hours` | float column over placed pods | sum; hours of work that an eviction loses |
| `victims` | numbers of units in order, or None | the first opinion decides; vetoes still apply |
| `node_cost` | a comparable value | a tuple in the policy's order; the node with the least is taken |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, runtime_checkable

from muster.engine.inter_pod_state import InterPodState
from muster.model.device import DeviceSlot
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang, Subgroup
from muster.model.pod import Phase, Pod
from muster.model.resource_amounts import Resources
from muster.model.topics import Topic
from muster.state.derived.topology_domains import WHOLE_CLUSTER as WHOLE_CLUSTER
from muster.state.derived.topology_domains import Domain as Domain
from muster.state.node_table import BoolColumn, FloatColumn, NodeRows, RowIndex

if TYPE_CHECKING:
    from muster.engine.evict.eviction_units import EvictionUnits
    from muster.engine.evict.victims import VictimTable
    from muster.engine.session import Session


class Purpose(Enum):
    ENQUEUE = "enqueue"
    ALLOCATE = "allocate"
    EVICT = "evict"
    """Could evictions help? What the ask may evict does not count as used."""
    NOMINATE = "nominate"
    """Judged on what will be once the releases under way are done."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Seats for these members of a gang, in this order."""

    gang: Gang
    pods: tuple[Pod, ...]
    purpose: Purpose
    action: str = "allocate"
    needed: int | None = None
    """So many of the first pods are what the gang's minimum still needs: these are admitted together or not at all. None: all."""

    subgroup: Subgroup | None = None
    """The subgroup that all the pods belong to, where only that is placed; `within` is the gang's domain."""
    within: Domain | None = None

    admitted: bool = False
    """True once all of the pods together were found to fit into their queues: then any part of them does."""

    @property
    def minimum(self) -> tuple[Pod, ...]:
        return self.pods[: self.needed]


@dataclass(frozen=True, slots=True)
class QuotaFit:
    """How many pods fit, and why no more."""

    fit_count: int
    verdict: Verdict = YES


@dataclass(frozen=True, slots=True)
class AllowedDomains:
    """Domains that an ask may go to, in order; the verdict says why there are none."""

    domains: Sequence[Domain]
    verdict: Verdict = YES


Comparable = int | float | str | tuple[int | float | str, ...]


class Plugin(Protocol):
    @property
    def name(self) -> str: ...


@runtime_checkable
class Prepares(Protocol):
    def prepare(self, s: Session) -> None: ...


@runtime_checkable
class Admits(Protocol):
    def admit(self, s: Session, ask: Ask) -> Verdict: ...


@runtime_checkable
class BoundsQueues(Protocol):
    """Asked as members are placed, with all that was placed before them already counted. `phase` is what they are to become."""

    def quota_fit(self, s: Session, pod: Pod, *, count: int, phase: Phase) -> QuotaFit: ...


@runtime_checkable
class DeservedShares(Protocol):
    """What a queue deserves, and what it uses beyond that, in the dimensions in which it deserves anything in particular. A
    queue without any deserves nothing in particular, and all that it uses is beyond its share."""

    def deserved(self, s: Session, queue: str) -> Resources: ...

    def over_share(self, s: Session, queue: str) -> Resources: ...


@runtime_checkable
class DescribesQueues(Protocol):
    """Further fields for a queue's status, beside what it uses and who waits in it."""

    def queue_fields(self, s: Session, queue: str) -> tuple[tuple[str, str], ...]: ...


@runtime_checkable
class DefaultsPreemptible(Protocol):
    """Whether a pod is preemptible that does not say so itself."""

    @property
    def preemptible_by_default(self) -> bool: ...


@runtime_checkable
class ConfiguresJobPreemption(Protocol):
    """How whole jobs preempt in a quota."""

    @property
    def disable_default_trigger_preemption(self) -> bool: ...

    @property
    def pod_should_be_deleted_when_preempted(self) -> bool: ...


@runtime_checkable
class OrdersQueues(Protocol):
    """The key must follow from the queue's own usage and from what does not change within a cycle."""

    def queue_key(self, s: Session, queue: str) -> Comparable: ...


@runtime_checkable
class OrdersGangs(Protocol):
    def gang_key(self, s: Session, gang: Gang) -> Comparable: ...


@runtime_checkable
class OrdersPods(Protocol):
    def pod_key(self, s: Session, pod: Pod) -> Comparable: ...


@runtime_checkable
class AllowsDomains(Protocol):
    """Where an ask may be placed. An ask for a subgroup is answered with domains inside `ask.within`."""

    def domains(self, s: Session, ask: Ask) -> Sequence[Domain] | Verdict | None: ...


@runtime_checkable
class FillsDomains(Protocol):
    """In which order the parts of a domain are filled so that members are close to each other; empty for no opinion."""

    def fill_order(self, s: Session, ask: Ask, domain: Domain) -> Sequence[Domain]: ...


@runtime_checkable
class Matches(Protocol):
    def match(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn: ...


@runtime_checkable
class Prefers(Protocol):
    @property
    def weight(self) -> float: ...

    def prefer(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn: ...


@runtime_checkable
class Fits(Protocol):
    def fit(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn: ...


@runtime_checkable
class AppliesToSome(Protocol):
    """For a `fit` that has nothing to say of most pods: False where it lets this one onto every node."""

    def applies_to(self, s: Session, pod: Pod) -> bool: ...


@runtime_checkable
class Scores(Protocol):
    @property
    def weight(self) -> float: ...

    def score(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn: ...


@runtime_checkable
class DependsOnTopics(Protocol):
    """For a `match`, `prefer`, `fit` or `score` that follows from more than the rows: they are called again for all nodes when one
    of these topics changed."""

    @property
    def depends(self) -> tuple[Topic, ...]: ...


@runtime_checkable
class ScoresDomains(Protocol):
    @property
    def weight(self) -> float: ...

    def score_domain(self, s: Session, ask: Ask, domain: Domain) -> float: ...


@runtime_checkable
class ScoresDomainsAhead(Protocol):
    """What `score_domain` would say of each domain if all pods of the ask were placed in it, to the last bit. A plugin that
    scores domains and has no such method makes the engine try every domain."""

    def score_domains(self, s: Session, ask: Ask, domains: Sequence[Domain]) -> FloatColumn: ...


@runtime_checkable
class InterPodFits(Protocol):
    """A check over more than the row itself: other pods, other nodes, devices. Asked again after every move."""

    def has_inter_pod_constraints(self, s: Session, pod: Pod) -> bool: ...

    def fit_inter_pod(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn: ...


@runtime_checkable
class InterPodScores(Protocol):
    @property
    def weight(self) -> float: ...

    def score_inter_pod(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn: ...


@runtime_checkable
class InterPodStates(Protocol):
    """For a check over other pods that can follow equal pods without their being moved: see `InterPodState`. Pods of one kind for
    which `inter_pod_key` says the same are the same to it."""

    def inter_pod_state(self, s: Session, pod: Pod, rows: NodeRows) -> InterPodState: ...

    def inter_pod_key(self, s: Session, pod: Pod) -> object: ...


@runtime_checkable
class ChoosesSlots(Protocol):
    """Which slots of a node's devices pods take. The pods are equal and go onto these nodes one after the other, where `fit` let
    them; a pod that needs none on a node gets an empty tuple. `after_releases`: what terminating pods have counts as free."""

    def slots(
        self, s: Session, pod: Pod, places: Sequence[str], *, after_releases: bool
    ) -> list[tuple[DeviceSlot, ...]] | None: ...


@runtime_checkable
class GivesReasons(Protocol):
    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str: ...


@runtime_checkable
class FiltersVictims(Protocol):
    """Called once for all candidates of a domain, as rows of the victim table: which may never be victims of this ask?"""

    def evictable(self, s: Session, ask: Ask, victim_table: VictimTable, victim: RowIndex) -> BoolColumn: ...


@runtime_checkable
class DelaysEviction(Protocol):
    """A veto that ends with time: from when on each of these is evictable."""

    def evictable_at(self, s: Session, ask: Ask, victim_table: VictimTable, victim: RowIndex) -> FloatColumn: ...


@runtime_checkable
class LimitsEvictions(Protocol):
    """Called as each unit is taken, with all that were taken before already evicted: may this one be evicted too?"""

    def allows_eviction(self, s: Session, ask: Ask, pods: Sequence[Pod]) -> Verdict: ...


@runtime_checkable
class ChecksBudgets(Protocol):
    """Units whose eviction would violate a disruption budget: they come last, where they are evictable at all."""

    @property
    def is_hard(self) -> bool:
        """Budgets are never violated: victims are evicted through the Eviction API, which enforces them."""
        ...

    def may_exceed_budget(
        self, s: Session, victim_table: VictimTable, victim: RowIndex, unit: RowIndex, units: int
    ) -> BoolColumn: ...

    def violates_budget(
        self, s: Session, victim_table: VictimTable, victim: RowIndex, unit: RowIndex, units: int
    ) -> BoolColumn: ...

    def budget_violations(self, s: Session, pods: Sequence[Pod]) -> int:
        """Called with the pods already evicted in the trial."""
        ...


@runtime_checkable
class CountsLostHours(Protocol):
    """Hours of work that are lost with each placed pod, and hours to restart."""

    def lost_hours(self, s: Session, victim_table: VictimTable, victim: RowIndex) -> FloatColumn: ...


@runtime_checkable
class SelectsVictims(Protocol):
    """May replace the choice of units: numbers of units in the order in which to take them, or None for no opinion."""

    def victims(self, s: Session, ask: Ask, eviction_units: EvictionUnits) -> Sequence[int] | None: ...


@runtime_checkable
class CostsNodes(Protocol):
    def node_cost(self, s: Session, pod: Pod, node: str, victims: Sequence[Pod]) -> Comparable: ...


T = TypeVar("T")


def setting(default: T, doc: str) -> T:
    """A setting and what it means. The policy file writes its name in camel case, `_s` as `Seconds`; numbers are not negative."""
    made: T = field(default=default, metadata={"doc": doc, "minimum": 0})
    return made


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """What a policy file sets that belongs to no plugin."""

    scheduler_names: tuple[str, ...] = ("muster",)
    """Pods whose schedulerName is one of these are ours."""
    victim_schedulers: tuple[str, ...] = setting(
        (), "Pods of these other schedulers may be evicted too, each by itself, and count in their queues. Of all others nobody is."
    )
    whole_gang: Literal["cluster", "domain"] = setting(
        "cluster", "What is evicted when a whole gang is: all its pods in the `cluster`, or only those in the `domain`."
    )
    strict_deserved: bool = setting(False, "Reclaim never takes a queue below its deserved share, not even with the last unit.")
    share_of: Literal["cluster", "deserved"] = setting(
        "cluster",
        "Reclaim takes from a queue with the larger share for one with the smaller: of the `cluster`, which favours small queues, "
        "or of what each has `deserved`, so that a large queue gets back all that it deserves.",
    )
    nomination_s: float = setting(600.0, "How long nominations hold after the last of their victims should have terminated.")
    eviction_cooldown_s: float = setting(600.0, "For how long a pod whose soft eviction was cancelled is not softly evicted again.")
    default_permit_wait_s: float = setting(600.0, "How long nodes stay reserved for an incomplete gang that declares no wait time.")


DEFAULT_SETTINGS = PolicySettings()


class Policy:
    """The plugins and actions that a policy file chose, sorted by what they take part in."""

    def __init__(
        self, plugins: Sequence[Plugin], actions: Sequence[str], *, settings: PolicySettings = DEFAULT_SETTINGS, source: str = ""
    ) -> None:
        self.plugins = tuple(plugins)
        self.actions = tuple(actions)
        self.settings = settings
        self.source = source
        self.prepares = [p for p in plugins if isinstance(p, Prepares)]
        self.admits = [p for p in plugins if isinstance(p, Admits)]
        self.bounds_queues = [p for p in plugins if isinstance(p, BoundsQueues)]
        self.preemptible_by_default = all(p.preemptible_by_default for p in plugins if isinstance(p, DefaultsPreemptible))
        jobs = [p for p in plugins if isinstance(p, ConfiguresJobPreemption)]
        self.requires_can_preempt = any(p.disable_default_trigger_preemption for p in jobs)
        self.soft_job_preemption = any(not p.pod_should_be_deleted_when_preempted for p in jobs)
        self.describes_queues = [p for p in plugins if isinstance(p, DescribesQueues)]
        self.deserved_shares = [p for p in plugins if isinstance(p, DeservedShares)]
        self.orders_queues = [p for p in plugins if isinstance(p, OrdersQueues)]
        self.orders_gangs = [p for p in plugins if isinstance(p, OrdersGangs)]
        self.orders_pods = [p for p in plugins if isinstance(p, OrdersPods)]
        self.allows_domains = [p for p in plugins if isinstance(p, AllowsDomains)]
        self.fills_domains = [p for p in plugins if isinstance(p, FillsDomains)]
        self.matches = [p for p in plugins if isinstance(p, Matches)]
        self.prefers = [p for p in plugins if isinstance(p, Prefers)]
        self.fits = [p for p in plugins if isinstance(p, Fits)]
        self.applies_to = [p if isinstance(p, AppliesToSome) else None for p in self.fits]
        """Beside each of `fits`: its `applies_to`, where it has one."""
        self.scores = [p for p in plugins if isinstance(p, Scores)]
        self.score_topics = tuple(sorted({topic for p in plugins for topic in _score_topics(p)}, key=lambda topic: topic.name))
        """What the answers of `matches`, `prefers`, `fits` and `scores` depend on besides the rows."""
        self.scores_domains = [p for p in plugins if isinstance(p, ScoresDomains)]
        self.inter_pod_fits = [p for p in plugins if isinstance(p, InterPodFits)]
        self.filters_victims = [p for p in plugins if isinstance(p, FiltersVictims)]
        self.delays_eviction = [p for p in plugins if isinstance(p, DelaysEviction)]
        self.limits_evictions = [p for p in plugins if isinstance(p, LimitsEvictions)]
        self.checks_budgets = [p for p in plugins if isinstance(p, ChecksBudgets)]
        self.counts_lost_hours = [p for p in plugins if isinstance(p, CountsLostHours)]
        self.selects_victims = [p for p in plugins if isinstance(p, SelectsVictims)]
        self.costs_nodes = [p for p in plugins if isinstance(p, CostsNodes)]
        self.inter_pod_scores = [p for p in plugins if isinstance(p, InterPodScores)]
        self.inter_pod_states = [p for p in plugins if isinstance(p, InterPodStates)]
        self.chooses_slots = [p for p in plugins if isinstance(p, ChoosesSlots)]

    def manner(self, action: str) -> str:
        """How an action evicts: by a soft-eviction mark, through the Eviction API, which enforces budgets, or by deletion."""
        if action == "job-preempt" and self.soft_job_preemption:
            return "soft"
        return "evict" if any(plugin.is_hard for plugin in self.checks_budgets) else "delete"


def _score_topics(plugin: Plugin) -> tuple[Topic, ...]:
    by_node = isinstance(plugin, Matches | Prefers | Fits | Scores)
    return plugin.depends if by_node and isinstance(plugin, DependsOnTopics) else ()
