"""The settings of a policy: what its file sets that belongs to no plugin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from muster.engine.option_field import option


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """The policy file writes each name in camel case, `_s` as `Seconds`."""

    scheduler_names: tuple[str, ...] = ("muster",)
    """Pods whose schedulerName is one of these are ours."""
    victim_schedulers: tuple[str, ...] = option(
        (), "Pods of these other schedulers may be evicted too, each by itself, and count in their queues. Of all others nobody is."
    )
    whole_gang: Literal["cluster", "domain"] = option(
        "cluster", "What is evicted when a whole gang is: all its pods in the `cluster`, or only those in the `domain`."
    )
    strict_deserved: bool = option(False, "Reclaim never takes a queue below its deserved share, not even with the last unit.")
    order: Literal["surplus", "priority"] = option(
        "surplus", "What comes first when victims are chosen: `surplus` members before whole gangs, or the lower `priority`."
    )
    reclaim_for: Literal["deserved", "fairShare"] = option(
        "deserved",
        "Up to which share a queue reclaims, and beyond which others reclaim from it: what it is `deserved`, or its `fairShare`, "
        "which includes its part by weight of what all deserved shares leave.",
    )
    preempt_within_parent: Literal["Never", "LowerPriority"] = option(
        "Never",
        "`LowerPriority`: a gang that would borrow, and whose parent queue stays within its share, takes from sibling queues what "
        "these borrow, of pods of lower priority. The annotation `muster.dev/preempt-within-parent` of a queue goes before it.",
    )
    usage_half_life_s: float = option(
        0.0,
        "Use in the past counts in the order of queues beyond what they deserve, half as much after so long; 0: it does not.",
        minimum=0,
    )
    evict_domains: Literal["best", "first"] = option(
        "best", "Of the plans in the domains that a gang may use the `best` is taken, or the `first` that is found."
    )
    max_evict_domains: int = option(8, "So many domains with a plan are compared, the likely cheapest first.")
    max_placements: int = option(4096, "So many placements are tried for a gang in one cycle, at most, to find its victims.")
    max_refused_attempts: int = option(
        16,
        "Beside others, so many attempts of a namespace are refused in one cycle; the rest of its gangs have their turn later.",
        minimum=2,
    )
    eviction_pause_s: float = option(
        60.0, "A gang that was evicted may have others evicted only after such a pause, which doubles with each of its evictions."
    )
    max_eviction_pause_s: float = option(1800.0, "The longest such pause.")
    stale_s: float = option(
        600.0,
        "A gang that has been below its minimum for so long and cannot be completed makes way for an earlier one of its priority.",
        minimum=0,
    )
    reserve_after_s: float = option(
        600.0,
        "For the first gang of a queue that has waited so long for capacity, and without a plan, nodes are kept; 0: never.",
        minimum=0,
    )
    max_reserved_idle_percent: int = option(
        10, "So many percent of the cluster may be idle because nodes are kept for gangs, the most idle aside.", minimum=0
    )
    move_every_s: float = option(
        3600.0, "Pods of one gang are moved once in so long, at most: see the action consolidate.", minimum=0
    )
    movable_queues: tuple[str, ...] = option(
        (), "Pods of these queues, and of those below them, may be moved, unless their annotation muster.dev/movable is false."
    )
    nomination_s: float = option(
        600.0, "How long nominations hold after the last of their victims should have terminated.", minimum=0
    )
    eviction_cooldown_s: float = option(
        600.0, "For how long a pod whose soft eviction was cancelled is not softly evicted again.", minimum=0
    )
    default_permit_wait_s: float = option(
        600.0, "How long nodes stay reserved for an incomplete gang that declares no wait time.", minimum=0
    )
    adopt_volcano: bool = option(
        False, "Take over nominations that Volcano wrote onto pods, when Muster starts. They evict nobody."
    )


DEFAULT_SETTINGS = PolicySettings()
