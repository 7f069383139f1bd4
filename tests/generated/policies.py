"""Policies by chance: every share plugin, and every setting that changes who may be evicted."""

from __future__ import annotations

from random import Random
from typing import Any

import yaml

from muster.config import DEFAULT_POLICY

SHARES = ("capacity", "proportion", "drf")
OTHERS = [plugin for plugin in yaml.safe_load(DEFAULT_POLICY)["plugins"] if plugin not in SHARES]
SETTINGS: dict[str, tuple[object, ...]] = {
    "strictDeserved": (True,),
    "wholeGang": ("domain",),
    "order": ("priority",),
    "evictDomains": ("first",),
    "victimSchedulers": (["another"],),
    "nominationSeconds": (60,),
    "evictionCooldownSeconds": (30,),
}
FAIRNESS: dict[str, tuple[object, ...]] = {
    "reserveAfterSeconds": (0, 30, 60, 120),
    "maxReservedIdlePercent": (0, 100),
    "reclaimFor": ("fairShare",),
    "preemptWithinParent": ("LowerPriority",),
    "usageHalfLifeSeconds": (600,),
    "staleSeconds": (30,),
    "moveEverySeconds": (0, 120),
}
ACTIONS = yaml.safe_load(DEFAULT_POLICY)["actions"]
OPTIONS: dict[str, tuple[dict[str, object], ...]] = {
    "pdb": ({"mode": "soft"},),
    "min-runtime": ({"actions": ["gang-reclaim"], "seconds": 0}, {"actions": ["gang-reclaim", "gang-preempt"]}),
    "elastic-quota": (
        {"enableRuntimeQuota": True},
        {"enableCheckParentQuota": True},
        {"podShouldBeDeletedWhenPreempted": False},
        {"disableDefaultPreemptible": True},
    ),
    "topology": ({"tiers": {"rack": "rack", "zone": "zone"}},),
}


def draw_policy(chance: Random, fairness: Random) -> dict[str, Any] | None:
    """Every third world has the default policy."""
    if chance.random() < 0.33:
        return None
    shares = chance.choice((["capacity"], ["capacity"], ["proportion"], ["drf"], []))
    plugins = [_with_option(plugin, chance) for plugin in OTHERS]
    settings = {name: chance.choice(values) for name, values in SETTINGS.items() if chance.random() < 0.15}
    settings |= {name: fairness.choice(values) for name, values in FAIRNESS.items() if fairness.random() < 0.4}
    made = {"plugins": [*shares, *plugins], **({"settings": settings} if settings else {})}
    if fairness.random() < 0.5:
        # Moves come first, or serve whom no other action had a plan for.
        at = fairness.choice((ACTIONS.index("allocate") + 1, len(ACTIONS)))
        made["actions"] = [*ACTIONS[:at], "consolidate", *ACTIONS[at:]]
    return made


def _with_option(plugin: object, chance: Random) -> object:
    name = plugin if isinstance(plugin, str) else next(iter(plugin)) if isinstance(plugin, dict) else ""
    if name in OPTIONS and chance.random() < 0.3:
        return {name: chance.choice(OPTIONS[name])}
    return plugin
