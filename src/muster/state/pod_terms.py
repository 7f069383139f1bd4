"""Which pods the terms of a pod mean: namespaces and labels, worked out once for all pods that are alike in them.

A term is written relative to its pod: no namespaces means the pod's own, and `matchLabelKeys` stands for the pod's own values. Here
it becomes a `Selection`, which means the same to everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from muster.model.events import Namespace
from muster.model.pod import Pod, PodSignature
from muster.model.pod_constraints import LabelSelector, Operator, PodTerm, Requirement

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label that every namespace has, whoever made it and whether it was seen yet or not."""

Namespaces = Mapping[str, Namespace]
Labels = Mapping[str, str]
Pair = tuple[str, str]

# So many different terms are remembered; past that all are forgotten, and those still needed come back.
_MOST_REMEMBERED = 8192


@dataclass(frozen=True, slots=True)
class Reach:
    """The pods that one term means: with these labels (None: nobody), in these namespaces or in those that a selector selects."""

    namespaces: tuple[str, ...]
    of_namespaces: LabelSelector | None
    labels: LabelSelector | None

    def means(self, namespaces: Namespaces, namespace: str, labels: Labels) -> bool:
        if self.labels is None or not self.labels.selects(labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.of_namespaces is not None and self.of_namespaces.selects(_namespace_labels(namespaces, namespace))


def _namespace_labels(namespaces: Namespaces, name: str) -> Labels:
    known = namespaces.get(name)
    return {**(known.labels if known is not None else {}), NAMESPACE_NAME: name}


@dataclass(frozen=True, slots=True)
class Selection:
    """The pods that every one of these reaches means."""

    reaches: tuple[Reach, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.reaches))

    def __hash__(self) -> int:
        return self._hash

    def means(self, namespaces: Namespaces, namespace: str, labels: Labels) -> bool:
        return all(reach.means(namespaces, namespace, labels) for reach in self.reaches)

    def means_pod(self, namespaces: Namespaces, pod: Pod) -> bool:
        return self.means(namespaces, pod.namespace, pod.labels)

    def pairs(self) -> tuple[Pair, ...] | None:
        """Labels of which every pod that is meant has one, or None where there are no such labels."""
        for reach in self.reaches:
            for one in reach.labels.requirements if reach.labels is not None else ():
                if one.operator is Operator.IN:
                    return tuple((one.key, value) for value in dict.fromkeys(one.values))
        return None


@dataclass(frozen=True, slots=True)
class TermTarget:
    """A selection, and the label whose values are the domains in which those pods are looked for."""

    selection: Selection
    key: str


@dataclass(frozen=True, slots=True)
class WeightedTarget:
    """An aim with a weight; below zero it pushes. None is the weight of a required affinity, which whoever asks decides."""

    aim: TermTarget
    weight: int | None


@dataclass(frozen=True, slots=True)
class PodTerms:
    """The terms of a pod. `near` have one selection in common: a pod counts for them only if it is meant by all of them."""

    near: tuple[TermTarget, ...]
    apart: tuple[TermTarget, ...]
    pulls: tuple[WeightedTarget, ...]
    """Its preferences."""
    gives: tuple[WeightedTarget, ...]
    """What it says to those who come later: its preferences, and what it required to be near."""


def has_terms(kind: PodSignature) -> bool:
    near, apart = kind.affinity, kind.anti_affinity
    return bool(near.required or apart.required or near.preferred or apart.preferred)


def wants(pod: Pod) -> PodTerms:
    near, apart = pod.signature.affinity, pod.signature.anti_affinity
    together = Selection(tuple(_reach(term, pod) for term in near.required))
    pulls = (
        *(WeightedTarget(_aim(each.term, pod), each.weight) for each in near.preferred),
        *(WeightedTarget(_aim(each.term, pod), -each.weight) for each in apart.preferred),
    )
    return PodTerms(
        near=tuple(TermTarget(together, term.topology_key) for term in near.required),
        apart=tuple(_aim(term, pod) for term in apart.required),
        pulls=pulls,
        gives=(*pulls, *(WeightedTarget(_aim(term, pod), None) for term in near.required)),
    )


def own_label_keys(kind: PodSignature) -> tuple[str, ...]:
    """The labels of its own that the terms of such a pod refer to."""
    both = (kind.affinity, kind.anti_affinity)
    terms = [term for part in both for term in (*part.required, *(each.term for each in part.preferred))]
    keys = {key for term in terms for key in (*term.match_label_keys, *term.mismatch_label_keys)}
    return tuple(sorted(keys | {key for constraint in kind.spread for key in constraint.match_label_keys}))


def _aim(term: PodTerm, pod: Pod) -> TermTarget:
    return TermTarget(Selection((_reach(term, pod),)), term.topology_key)


def _reach(term: PodTerm, pod: Pod) -> Reach:
    own_namespace = not term.namespaces and term.namespace_selector is None
    return Reach(
        namespaces=(pod.namespace,) if own_namespace else tuple(sorted(set(term.namespaces))),
        of_namespaces=term.namespace_selector,
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
    """What is made of the terms of a pod, once for all pods that are alike in everything that their terms refer to."""

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
    """Things found by the pods that their selection means, without looking at every one of them."""

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

    def meaning(self, namespaces: Namespaces, namespace: str, labels: Labels) -> list[T]:
        """The things whose selection means a pod with this namespace and these labels, each once."""
        found: dict[T, None] = {}
        for bucket in (self._others, *(self._by_pair[pair] for pair in labels.items() if pair in self._by_pair)):
            for thing, selection in bucket.items():
                if selection.means(namespaces, namespace, labels):
                    found[thing] = None
        return list(found)

    def _buckets(self, selection: Selection) -> Iterator[dict[T, Selection]]:
        pairs = selection.pairs()
        if pairs is None:
            yield self._others
        else:
            for pair in pairs:
                yield self._by_pair.setdefault(pair, {})
