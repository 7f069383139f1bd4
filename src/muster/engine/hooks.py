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
| `deserved` | a row for each queue | the first answer |
| `configured_share` | Resources | all that have an opinion must agree |
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
| `score_key` | any value | optional, beside `score`: what else it follows from; asked once a cycle, scores are kept by it |
| `depends` | a tuple of Topics, no method | optional, beside `match`, `prefer`, `fit`, `score`: what else they follow from |
| `has_inter_pod_constraints` | bool | for pods whose place depends on pods of other nodes: the next two are asked |
| `fit_inter_pod`, `score_inter_pod` | as `fit` and `score` | as `fit` and `score` |
| `inter_pod_state`, `inter_pod_key` | an InterPodState; any value | optional: equal pods with equal keys are placed together |
| `slots` | device slots for each of equal pods, or None | the first opinion decides; called as pods are placed |
| `reasons` | a phrase for the rows refused | the first plugin that refuses a row explains it |
| `evictable` | bool column over placed pods | and; False: never a victim of this ask; called once for all candidates of a domain |
| `why_protected` | text | completes "3 pods are ..." for those that `evictable` protects |
| `evictable_at` | float column over placed pods | the earliest time at which a veto of `evictable` ends |
| `allows_eviction` | Verdict | all must agree; called as each unit is taken, with those before it already evicted |
| `budget_use` | counts, and what is left | the first that has budgets; pods of each unit under each disruption budget |
| `lost_hours` | float column over placed pods | sum; hours of work that an eviction loses |
| `victims` | numbers of units in order, or None | the first opinion decides; vetoes still apply |
| `node_cost` | a comparable value | a tuple in the policy's order; the node with the least is taken |
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol, get_args, get_type_hints, runtime_checkable

from muster.engine.inter_pod_state import InterPodState
from muster.engine.policy_settings import DEFAULT_SETTINGS, PolicySettings
from muster.model.device import DeviceSlot
from muster.model.effects import YES, Verdict
from muster.model.gang import Gang, Subgroup
from muster.model.pod import Phase, Pod
from muster.model.resource_amounts import Resources
from muster.model.topics import Topic
from muster.state.derived.topology_domains import WHOLE_CLUSTER as WHOLE_CLUSTER
from muster.state.derived.topology_domains import Domain as Domain
from muster.state.node_table import BoolColumn, FloatColumn, IntColumn, NodeRows, RowIndex
from muster.state.resource_columns import Amounts

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
    """Nodes for these members of a gang, in this order."""

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
class Prepares(Plugin, Protocol):
    def prepare(self, s: Session) -> None: ...


@runtime_checkable
class Admits(Plugin, Protocol):
    def admit(self, s: Session, ask: Ask) -> Verdict: ...


@runtime_checkable
class BoundsQueues(Plugin, Protocol):
    """Asked as members are placed, with all that was placed before them already counted. `phase` is what they are to become."""

    def quota_fit(self, s: Session, pod: Pod, *, count: int, phase: Phase) -> QuotaFit: ...


@runtime_checkable
class DeservedShares(Plugin, Protocol):
    """`deserved`: what each queue deserves, for the order of queues, fair shares and reports; rows as in the ledger.
    `configured_share`: a queue's share by which reclaim judges who may give and take, only in the dimensions that are configured
    for this very queue; zero is a share of nothing."""

    def deserved(self, s: Session) -> Amounts: ...

    def configured_share(self, s: Session, queue: str) -> Resources: ...


@runtime_checkable
class DescribesQueues(Plugin, Protocol):
    """Further fields for a queue's status, beside what it uses and who waits in it."""

    def queue_fields(self, s: Session, queue: str) -> tuple[tuple[str, str], ...]: ...


@runtime_checkable
class DefaultsPreemptible(Plugin, Protocol):
    """Whether a pod is preemptible that does not say so itself."""

    @property
    def preemptible_by_default(self) -> bool: ...


@runtime_checkable
class ConfiguresJobPreemption(Plugin, Protocol):
    """How whole jobs preempt in a quota."""

    @property
    def disable_default_trigger_preemption(self) -> bool: ...

    @property
    def pod_should_be_deleted_when_preempted(self) -> bool: ...


@runtime_checkable
class OrdersQueues(Plugin, Protocol):
    """The key must follow from the queue's own usage and from what does not change within a cycle."""

    def queue_key(self, s: Session, queue: str) -> Comparable: ...


@runtime_checkable
class OrdersGangs(Plugin, Protocol):
    def gang_key(self, s: Session, gang: Gang) -> Comparable: ...


@runtime_checkable
class OrdersPods(Plugin, Protocol):
    def pod_key(self, s: Session, pod: Pod) -> Comparable: ...


@runtime_checkable
class AllowsDomains(Plugin, Protocol):
    """Where an ask may be placed. An ask for a subgroup is answered with domains inside `ask.within`."""

    def domains(self, s: Session, ask: Ask) -> Sequence[Domain] | Verdict | None: ...


@runtime_checkable
class FillsDomains(Plugin, Protocol):
    """In which order the parts of a domain are filled so that members are close to each other; empty for no opinion."""

    def fill_order(self, s: Session, ask: Ask, domain: Domain) -> Sequence[Domain]: ...


@runtime_checkable
class Matches(Plugin, Protocol):
    def match(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn: ...


@runtime_checkable
class Prefers(Plugin, Protocol):
    @property
    def weight(self) -> float: ...

    def prefer(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn: ...


@runtime_checkable
class Fits(Plugin, Protocol):
    def fit(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn: ...


@runtime_checkable
class AppliesToSome(Plugin, Protocol):
    """For a `fit` that has nothing to say of most pods: False where it lets this one onto every node."""

    def applies_to(self, s: Session, pod: Pod) -> bool: ...


@runtime_checkable
class Scores(Plugin, Protocol):
    @property
    def weight(self) -> float: ...

    def score(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn: ...


@runtime_checkable
class KeyedScores(Plugin, Protocol):
    """For a `score` that follows the workload: scores of nodes are kept for each key, and are those of the key of this cycle."""

    def score_key(self, s: Session) -> Hashable: ...


@runtime_checkable
class DependsOnTopics(Plugin, Protocol):
    """For a `match`, `prefer`, `fit` or `score` that follows from more than the rows: they are called again for all nodes when one
    of these topics changed."""

    @property
    def depends(self) -> tuple[Topic, ...]: ...


@runtime_checkable
class ScoresDomains(Plugin, Protocol):
    @property
    def weight(self) -> float: ...

    def score_domain(self, s: Session, ask: Ask, domain: Domain) -> float: ...


@runtime_checkable
class ScoresDomainsAhead(Plugin, Protocol):
    """What `score_domain` would say of each domain if all pods of the ask were placed in it, to the last bit. A plugin that
    scores domains and has no such method makes the engine try every domain."""

    def score_domains(self, s: Session, ask: Ask, domains: Sequence[Domain]) -> FloatColumn: ...


@runtime_checkable
class InterPodFits(Plugin, Protocol):
    """A check over more than the row itself: other pods, other nodes, devices. Asked again after every move. Members of one gang
    with the same signature, namespace, labels and nominated node get the same answers."""

    def has_inter_pod_constraints(self, s: Session, pod: Pod) -> bool: ...

    def fit_inter_pod(self, s: Session, pod: Pod, rows: NodeRows) -> BoolColumn: ...


@runtime_checkable
class InterPodScores(Plugin, Protocol):
    @property
    def weight(self) -> float: ...

    def score_inter_pod(self, s: Session, pod: Pod, rows: NodeRows) -> FloatColumn: ...


@runtime_checkable
class InterPodStates(Plugin, Protocol):
    """For a check over other pods that can follow equal pods without their being moved: see `InterPodState`. Pods of one signature
    for which `inter_pod_key` says the same are the same to it."""

    def inter_pod_state(self, s: Session, pod: Pod, rows: NodeRows) -> InterPodState: ...

    def inter_pod_key(self, s: Session, pod: Pod) -> object: ...


@runtime_checkable
class ChoosesSlots(Plugin, Protocol):
    """Which slots of a node's devices pods take. The pods are equal and go onto these nodes one after the other, where `fit` let
    them; a pod that needs none on a node gets an empty tuple. `after_releases`: what terminating pods have counts as free."""

    def slots(
        self, s: Session, pod: Pod, places: Sequence[str], *, after_releases: bool
    ) -> list[tuple[DeviceSlot, ...]] | None: ...


@runtime_checkable
class GivesReasons(Plugin, Protocol):
    def reasons(self, s: Session, pod: Pod, rows: NodeRows) -> str: ...


@runtime_checkable
class FiltersVictims(Plugin, Protocol):
    """Called once for all candidates of a domain, as rows of the victim table: which may never be victims of this ask?"""

    def evictable(self, s: Session, ask: Ask, victim_table: VictimTable, victim: RowIndex) -> BoolColumn: ...


@runtime_checkable
class ExplainsProtection(Plugin, Protocol):
    """Completes the sentence "3 pods are ..." for these, which `evictable` protects."""

    def why_protected(self, s: Session, pods: Sequence[Pod]) -> str: ...


@runtime_checkable
class DelaysEviction(Plugin, Protocol):
    """A veto that ends with time: from when on each of these is evictable."""

    def evictable_at(self, s: Session, ask: Ask, victim_table: VictimTable, victim: RowIndex) -> FloatColumn: ...


@runtime_checkable
class LimitsEvictions(Plugin, Protocol):
    """Called as each unit is taken, with all that were taken before already evicted: may this one be evicted too?"""

    def allows_eviction(self, s: Session, ask: Ask, pods: Sequence[Pod]) -> Verdict: ...


@runtime_checkable
class ChecksBudgets(Plugin, Protocol):
    """Units whose eviction would violate a disruption budget: they come last, where they are evictable at all."""

    @property
    def is_hard(self) -> bool:
        """Budgets are never violated: victims are evicted through the Eviction API, which enforces them."""
        ...

    def budget_use(
        self, s: Session, victim_table: VictimTable, victim: RowIndex, unit: RowIndex, units: int
    ) -> tuple[IntColumn, IntColumn]:
        """How many pods of each unit are under each budget (a row for each unit), and what each budget has left."""
        ...


@runtime_checkable
class CountsLostHours(Plugin, Protocol):
    """Hours of work that are lost with each placed pod, and hours to restart."""

    def lost_hours(self, s: Session, victim_table: VictimTable, victim: RowIndex) -> FloatColumn: ...


@runtime_checkable
class SelectsVictims(Plugin, Protocol):
    """May replace the choice of units: numbers of units in the order in which to take them, or None for no opinion."""

    def victims(self, s: Session, ask: Ask, eviction_units: EvictionUnits) -> Sequence[int] | None: ...


@runtime_checkable
class CostsNodes(Plugin, Protocol):
    def node_cost(self, s: Session, pod: Pod, node: str, victims: Sequence[Pod]) -> Comparable: ...


class Policy:
    """The plugins and actions that a policy file chose. Each list below has the plugins that take part in a hook, in the policy's
    order: those that are of its type."""

    prepares: list[Prepares]
    admits: list[Admits]
    bounds_queues: list[BoundsQueues]
    describes_queues: list[DescribesQueues]
    deserved_shares: list[DeservedShares]
    orders_queues: list[OrdersQueues]
    orders_gangs: list[OrdersGangs]
    orders_pods: list[OrdersPods]
    allows_domains: list[AllowsDomains]
    fills_domains: list[FillsDomains]
    scores_domains: list[ScoresDomains]
    matches: list[Matches]
    prefers: list[Prefers]
    fits: list[Fits]
    scores: list[Scores]
    keyed_scores: list[KeyedScores]
    inter_pod_fits: list[InterPodFits]
    inter_pod_scores: list[InterPodScores]
    inter_pod_states: list[InterPodStates]
    chooses_slots: list[ChoosesSlots]
    filters_victims: list[FiltersVictims]
    limits_evictions: list[LimitsEvictions]
    checks_budgets: list[ChecksBudgets]
    counts_lost_hours: list[CountsLostHours]
    selects_victims: list[SelectsVictims]
    costs_nodes: list[CostsNodes]
    depends_on_topics: list[DependsOnTopics]
    defaults_preemptible: list[DefaultsPreemptible]
    configures_job_preemption: list[ConfiguresJobPreemption]

    def __init__(
        self, plugins: Sequence[Plugin], actions: Sequence[str], *, settings: PolicySettings = DEFAULT_SETTINGS, source: str = ""
    ) -> None:
        self.plugins = tuple(plugins)
        self.actions = tuple(actions)
        self.settings = settings
        self.source = source
        for name, members in _HOOK_MEMBERS.items():
            setattr(self, name, [plugin for plugin in plugins if all(hasattr(plugin, member) for member in members)])
        self.applies_to = [plugin if isinstance(plugin, AppliesToSome) else None for plugin in self.fits]
        """Beside each of `fits`: its `applies_to`, where it has one."""
        topics = {topic for plugin in self.depends_on_topics for topic in plugin.depends}
        self.score_topics = tuple(sorted(topics, key=lambda topic: topic.name))
        """What the answers of `matches`, `prefers`, `fits` and `scores` depend on besides the rows."""
        self.preemptible_by_default = all(plugin.preemptible_by_default for plugin in self.defaults_preemptible)
        jobs = self.configures_job_preemption
        self.requires_can_preempt = any(plugin.disable_default_trigger_preemption for plugin in jobs)
        self.soft_job_preemption = any(not plugin.pod_should_be_deleted_when_preempted for plugin in jobs)

    def manner(self, action: str, *, queue: str = "") -> str:
        """How an action evicts: by a soft-eviction mark, through the Eviction API, which enforces budgets, or by deletion. All pods
        that are charged to an ElasticQuota (`queue`) are evicted in one manner, whichever action chose them."""
        if self.soft_job_preemption and (action == "job-preempt" or queue.startswith("quota/")):
            return "soft"
        return "evict" if any(plugin.is_hard for plugin in self.checks_budgets) else "delete"


def _members(hook: type) -> tuple[str, ...]:
    """What an object must have to be of this type. `isinstance` asks for the same, and finds it out anew for each object."""
    parts = [part for part in hook.__mro__ if getattr(part, "_is_protocol", False) and part is not Protocol]
    found = (name for part in parts for name in (*part.__annotations__, *vars(part)) if not name.startswith("_"))
    return tuple(dict.fromkeys(found))


_HOOK_MEMBERS: Mapping[str, tuple[str, ...]] = {name: _members(get_args(hint)[0]) for name, hint in get_type_hints(Policy).items()}
