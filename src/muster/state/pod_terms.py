"""Which pods the inter-pod terms of a pod select: namespaces and labels, resolved once for all pods with equal terms.

A term is written relative to its pod: no namespaces means the pod's own, and `matchLabelKeys` uses the pod's own values. Here
it becomes a `Selection`, which is independent of the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from muster.model.events import Namespace
from muster.model.pod import Pod, PodSignature
from muster.model.pod_constraints import LabelSelector, Operator, PodTerm, Requirement

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label that every namespace has, observed yet or not."""

Namespaces = Mapping[str, Namespace]
Labels = Mapping[str, str]
Pair = tuple[str, str]

# So many different terms are remembered; past that all are forgotten, and those still needed come back.
_MOST_REMEMBERED = 8192


@dataclass(frozen=True, slots=True)
class TermSelector:
    """The pods that one term selects: with these labels (None: none), in these namespaces or in those of a namespace selector."""

    namespaces: tuple[str, ...]
    namespace_selector: LabelSelector | None
    labels: LabelSelector | None

    def matches(self, namespaces: Namespaces, namespace: str, labels: Labels) -> bool:
        if self.labels is None or not self.labels.selects(labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and self.namespace_selector.selects(_namespace_labels(namespaces, namespace))


def _namespace_labels(namespaces: Namespaces, name: str) -> Labels:
    known = namespaces.get(name)
    return {**(known.labels if known is not None else {}), NAMESPACE_NAME: name}


@dataclass(frozen=True, slots=True)
class Selection:
    """The pods that every one of these term selectors matches."""

    selectors: tuple[TermSelector, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.selectors))

    def __hash__(self) -> int:
        return self._hash

    def matches(self, namespaces: Namespaces, namespace: str, labels: Labels) -> bool:
        return all(selector.matches(namespaces, namespace, labels) for selector in self.selectors)

    def matches_pod(self, namespaces: Namespaces, pod: Pod) -> bool:
        return self.matches(namespaces, pod.namespace, pod.labels)

    def pairs(self) -> tuple[Pair, ...] | None:
        """Labels of which every matching pod has one, or None where there are no such labels."""
        for selector in self.selectors:
            for one in selector.labels.requirements if selector.labels is not None else ():
                if one.operator is Operator.IN:
                    return tuple((one.key, value) for value in dict.fromkeys(one.values))
        return None


@dataclass(frozen=True, slots=True)
class TermTarget:
    """A selection, and the topology key whose values are the domains."""

    selection: Selection
    key: str


@dataclass(frozen=True, slots=True)
class WeightedTarget:
    """A target with a weight, negative for anti-affinity. None: a required affinity, whose weight the scoring plugin decides."""

    target: TermTarget
    weight: int | None


@dataclass(frozen=True, slots=True)
class PodTerms:
    """The terms of a pod. Its required affinity terms share one selection: a pod counts only if all of them match it."""

    required_affinity: tuple[TermTarget, ...]
    required_anti_affinity: tuple[TermTarget, ...]
    preferences: tuple[WeightedTarget, ...]
    """Its preferences."""
    existing_pod_terms: tuple[WeightedTarget, ...]
    """What later pods are scored by once it is placed: its preferences and its required affinity."""


def has_terms(kind: PodSignature) -> bool:
    near, apart = kind.affinity, kind.anti_affinity
    return bool(near.required or apart.required or near.preferred or apart.preferred)


def terms_of(pod: Pod) -> PodTerms:
    near, apart = pod.signature.affinity, pod.signature.anti_affinity
    together = Selection(tuple(_term_selector(term, pod) for term in near.required))
    pulls = (
        *(WeightedTarget(_target(each.term, pod), each.weight) for each in near.preferred),
        *(WeightedTarget(_target(each.term, pod), -each.weight) for each in apart.preferred),
    )
    return PodTerms(
        required_affinity=tuple(TermTarget(together, term.topology_key) for term in near.required),
        required_anti_affinity=tuple(_target(term, pod) for term in apart.required),
        preferences=pulls,
        existing_pod_terms=(*pulls, *(WeightedTarget(_target(term, pod), None) for term in near.required)),
    )


def own_label_keys(kind: PodSignature) -> tuple[str, ...]:
    """The labels of the pod itself that its terms refer to."""
    both = (kind.affinity, kind.anti_affinity)
    terms = [term for part in both for term in (*part.required, *(each.term for each in part.preferred))]
    keys = {key for term in terms for key in (*term.match_label_keys, *term.mismatch_label_keys)}
    return tuple(sorted(keys | {key for constraint in kind.spread for key in constraint.match_label_keys}))


def _target(term: PodTerm, pod: Pod) -> TermTarget:
    return TermTarget(Selection((_term_selector(term, pod),)), term.topology_key)


def _term_selector(term: PodTerm, pod: Pod) -> TermSelector:
    own_namespace = not term.namespaces and term.namespace_selector is None
    return TermSelector(
        namespaces=(pod.namespace,) if own_namespace else tuple(sorted(set(term.namespaces))),
        namespace_selector=term.namespace_selector,
        labels=with_own_labels(term.selector, pod.labels, like=term.match_label_keys, unlike=term.mismatch_label_keys),
    )


def with_own_labels(
    selector: LabelSelector | None, labels: Labels, *, like: Iterable[str], unlike: Iterable[str] = ()
) -> LabelSelector | None:
    """The selector, narrowed to pods like this one in some labels and unlike it in others. Labels that it lacks do not count."""
    if selector is None:
        return None
    own = [Requirement(key, Operator.IN, (labels[key],)) for key in like if key in labels]
    other = [Requirement(key, Operator.NOT_IN, (labels[key],)) for key in unlike if key in labels]
    return LabelSelector((*selector.requirements, *own, *other)) if own or other else selector


T = TypeVar("T")


class PerTermsCache(Generic[T]):
    """A value computed from the terms of a pod, once for all pods with equal terms."""

    def __init__(self, make: Callable[[Pod], T]) -> None:
        self._make = make
        self._keys: dict[PodSignature, tuple[str, ...]] = {}
        self._made: dict[tuple[PodSignature, str, tuple[str | None, ...]], T] = {}

    def of(self, pod: Pod) -> T:
        keys = self._keys.get(pod.signature)
        if keys is None:
            if len(self._keys) >= _MOST_REMEMBERED:
                self._keys.clear()
            keys = self._keys[pod.signature] = own_label_keys(pod.signature)
        key = (pod.signature, pod.namespace, tuple([pod.labels.get(each) for each in keys]))
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= _MOST_REMEMBERED:
                self._made.clear()
            found = self._made[key] = self._make(pod)
        return found


class BySelection(Generic[T]):
    """Finds the selections that match a pod without trying every one of them."""

    def __init__(self) -> None:
        self._by_pair: dict[Pair, dict[T, Selection]] = {}
        self._others: dict[T, Selection] = {}

    def __bool__(self) -> bool:
        return bool(self._by_pair or self._others)

    def add(self, thing: T, selection: Selection) -> None:
        for bucket in self._buckets(selection):
            bucket[thing] = selection

    def remove(self, thing: T, selection: Selection) -> None:
        pairs = selection.pairs()
        if pairs is None:
            del self._others[thing]
            return
        for pair in pairs:
            del self._by_pair[pair][thing]
            if not self._by_pair[pair]:
                del self._by_pair[pair]

    def clear(self) -> None:
        self._by_pair.clear()
        self._others.clear()

    def matching(self, namespaces: Namespaces, namespace: str, labels: Labels) -> list[T]:
        """The entries whose selection matches a pod with this namespace and these labels, each once."""
        found: dict[T, None] = {}
        for bucket in (self._others, *(self._by_pair[pair] for pair in labels.items() if pair in self._by_pair)):
            for thing, selection in bucket.items():
                if selection.matches(namespaces, namespace, labels):
                    found[thing] = None
        return list(found)

    def _buckets(self, selection: Selection) -> Iterator[dict[T, Selection]]:
        pairs = selection.pairs()
        if pairs is None:
            yield self._others
        else:
            for pair in pairs:
                yield self._by_pair.setdefault(pair, {})
