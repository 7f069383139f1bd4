"""What a plugin may say, and how the answers of several plugins combine.

A plugin is any object with a `name`; it takes part in a hook by having the method. Hooks get the session, which is read-only to
them, and derive all they need from its world: a plugin owns no counters. Hooks over nodes get some rows and answer for exactly
those, as a column.

| hook | answer | combined by |
| --- | --- | --- |
| `prepare` | nothing | each, once a cycle |
| `admit` | Verdict | all must agree; the first refusal is the reason |
| `queue_key`, `gang_key`, `pod_key` | a comparable value | a tuple in the policy's order, then creation and name |
| `domains` | ordered domains, or None | the first opinion decides; an empty list is a refusal |
| `match` | bool column | and; what eviction cannot change; kept per kind of pod |
| `fit` | bool column | and; what eviction can change; must follow from the rows' own figures |
| `score` | float column, 0 to 1 | weighted sum; must follow from the rows' own figures |
| `entangled`, then `fit_among`, `score_among` | as `fit` and `score` | for pods whose place depends on other nodes' pods |
| `blame` | words for the rows refused | the first plugin that refuses a row explains it |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from muster.model.effects import Verdict
from muster.model.gang import Gang
from muster.model.pod import Pod
from muster.state.table import BoolColumn, FloatColumn, RowIndex, Rows

if TYPE_CHECKING:
    from muster.engine.session import Session


class Purpose(Enum):
    ENQUEUE = "enqueue"
    ALLOCATE = "allocate"
    EVICT = "evict"


@dataclass(frozen=True, slots=True)
class Ask:
    """Seats for these members of a gang, in this order."""

    gang: Gang
    pods: tuple[Pod, ...]
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class Domain:
    """Nodes within which a whole gang must fit. `rows` None: every node."""

    name: str
    rows: RowIndex | None = None
    tier: int | None = None


WHOLE_CLUSTER = Domain("the whole cluster")

Comparable = int | float | str | tuple[int | float | str, ...]


class Plugin(Protocol):
    name: str


@runtime_checkable
class Prepares(Protocol):
    def prepare(self, s: Session) -> None: ...


@runtime_checkable
class Admits(Protocol):
    def admit(self, s: Session, ask: Ask) -> Verdict: ...


@runtime_checkable
class OrdersQueues(Protocol):
    def queue_key(self, s: Session, queue: str) -> Comparable: ...


@runtime_checkable
class OrdersGangs(Protocol):
    def gang_key(self, s: Session, gang: Gang) -> Comparable: ...


@runtime_checkable
class OrdersPods(Protocol):
    def pod_key(self, s: Session, pod: Pod) -> Comparable: ...


@runtime_checkable
class NamesDomains(Protocol):
    def domains(self, s: Session, ask: Ask) -> Sequence[Domain] | None: ...


@runtime_checkable
class Matches(Protocol):
    def match(self, s: Session, pod: Pod, rows: Rows) -> BoolColumn: ...


@runtime_checkable
class Fits(Protocol):
    def fit(self, s: Session, pod: Pod, rows: Rows) -> BoolColumn: ...


@runtime_checkable
class Scores(Protocol):
    weight: float

    def score(self, s: Session, pod: Pod, rows: Rows) -> FloatColumn: ...


@runtime_checkable
class ScoresDomains(Protocol):
    weight: float

    def score_domain(self, s: Session, ask: Ask, domain: Domain) -> float: ...


@runtime_checkable
class Entangles(Protocol):
    """A check over more than the row itself: other pods, other nodes, devices. Asked again after every move."""

    def entangled(self, s: Session, pod: Pod) -> bool: ...

    def fit_among(self, s: Session, pod: Pod, rows: Rows) -> BoolColumn: ...


@runtime_checkable
class ScoresAmong(Protocol):
    weight: float

    def score_among(self, s: Session, pod: Pod, rows: Rows) -> FloatColumn: ...


@runtime_checkable
class Blames(Protocol):
    def blame(self, s: Session, pod: Pod, rows: Rows) -> str: ...


class Policy:
    """The plugins and actions that a policy file chose, sorted by what they take part in."""

    def __init__(self, plugins: Sequence[Plugin], actions: Sequence[str], *, source: str = "") -> None:
        self.plugins = tuple(plugins)
        self.actions = tuple(actions)
        self.source = source
        self.prepares = [p for p in plugins if isinstance(p, Prepares)]
        self.admits = [p for p in plugins if isinstance(p, Admits)]
        self.orders_queues = [p for p in plugins if isinstance(p, OrdersQueues)]
        self.orders_gangs = [p for p in plugins if isinstance(p, OrdersGangs)]
        self.orders_pods = [p for p in plugins if isinstance(p, OrdersPods)]
        self.names_domains = [p for p in plugins if isinstance(p, NamesDomains)]
        self.matches = [p for p in plugins if isinstance(p, Matches)]
        self.fits = [p for p in plugins if isinstance(p, Fits)]
        self.scores = [p for p in plugins if isinstance(p, Scores)]
        self.scores_domains = [p for p in plugins if isinstance(p, ScoresDomains)]
        self.entangles = [p for p in plugins if isinstance(p, Entangles)]
        self.scores_among = [p for p in plugins if isinstance(p, ScoresAmong)]
