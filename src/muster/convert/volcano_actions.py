"""Volcano's actions as Muster's, in the order that Muster requires, and what their arguments become."""

from __future__ import annotations

from collections.abc import Mapping

from muster.convert.policy_draft import NoteRank, PolicyDraft
from muster.convert.volcano_conf import Arguments, VolcanoConf
from muster.engine.cycle import ACTIONS
from muster.engine.quota import EVICTING_ACTIONS

ACTION_MAP: Mapping[str, tuple[str, ...]] = {
    "enqueue": ("enqueue",),
    "allocate": ("allocate",),
    "preempt": ("preempt", "gang-preempt"),
    "reclaim": ("gang-reclaim",),
    "gangpreempt": ("gang-preempt",),
    "gangreclaim": ("gang-reclaim",),
}
OMITTED_ACTIONS = {
    "backfill": "action backfill was left out: allocate places pods without requests together with all others",
    "elect": "action elect was left out: reserveAfterSeconds says after which wait nodes are kept for a gang",
    "reserve": "action reserve was left out: nodes that are kept for a gang need no action",
    "shuffle": "action shuffle has no counterpart: only consolidate moves pods, and only for a gang that waits",
}
# Who speaks up in Volcano before anybody is evicted. Where nobody does, nobody is.
_PREEMPTABLE = ("gang", "priority", "conformance", "drf", "tdm", "pdb", "cdp", "extender")
_RECLAIMABLE = ("gang", "conformance", "proportion", "capacity", "drf", "pdb", "cdp", "extender")
_STARVING = ("gang", "priority", "tdm", "extender")
_ENQUEUEABLE = ("proportion", "capacity", "overcommit", "resourcequota", "sla", "extender")
_EVICTING = ("preempt", "reclaim", "gangpreempt", "gangreclaim")
_REQUIRED_FLAGS = {
    "preempt": ("enablePreemptable", _PREEMPTABLE, "which pods are evictable, so Volcano evicts none"),
    "reclaim": ("enableReclaimable", _RECLAIMABLE, "which pods are evictable, so Volcano evicts none"),
    "enqueue": ("enableJobEnqueued", _ENQUEUEABLE, "which jobs are enqueued, so Volcano enqueues all"),
}
_PERFORMANCE_ONLY = (
    "predicateErrorCacheEnable",
    "topologyAwarePreemptWorkerNum",
    "minCandidateNodesPercentage",
    "minCandidateNodesAbsolute",
    "maxCandidateNodesAbsolute",
)


def convert_actions(conf: VolcanoConf, draft: PolicyDraft) -> None:
    wanted: list[str] = []
    for action in conf.actions:
        name = action.text
        if name in OMITTED_ACTIONS:
            draft.add_note(OMITTED_ACTIONS[name], action, rank=NoteRank.SAME)
        elif name not in ACTION_MAP:
            draft.note_unknown("unknown action", action, [*ACTION_MAP, *OMITTED_ACTIONS], why=", as Volcano itself refuses it")
        elif why := _why_no_effect(conf, name):
            draft.add_note(f"action {name} was left out: {why}", action)
        else:
            wanted.extend(each for each in ACTION_MAP[name] if each not in wanted)
    if "allocate" not in wanted:
        draft.add_note("action allocate was added: nothing is ever placed without it")
        wanted.append("allocate")
    draft.actions = [name for name in ACTIONS if name == "expire" or name in wanted]
    if [name for name in wanted if name in draft.actions] != draft.actions[1:]:
        draft.add_note(f"the order of the actions is now {', '.join(draft.actions)}: evictions are only for gangs that do not fit")
    _convert_arguments(conf, draft)
    _note_gang_eviction(conf, wanted, draft)
    _recommend_plugins(draft)


def _note_gang_eviction(conf: VolcanoConf, wanted: list[str], draft: PolicyDraft) -> None:
    """Which members Volcano's gang plugin does not evict, and which are evicted here."""
    their = conf.plugin("gang")
    if their is None:
        return
    here = "here surplus members are evicted one by one, and the others with their whole gang"
    for action, ours, flag in (("preempt", "gang-preempt", "enablePreemptable"), ("reclaim", "gang-reclaim", "enableReclaimable")):
        if ours in wanted and any(name.text == action for name in conf.actions):
            theirs = (
                "does not evict gangs that have no surplus members"
                if their.is_enabled(flag)
                else "evicts single members of any gang"
            )
            draft.add_note(
                f"gang: with {flag}: {str(their.is_enabled(flag)).lower()} Volcano's {action} {theirs}; {here}", their.name
            )


def _recommend_plugins(draft: PolicyDraft) -> None:
    """Plugins that Volcano does not have and that protect running pods."""
    absent = [name for name in ("pdb", "min-runtime", "lost-work") if not draft.uses(name)]
    if absent and not EVICTING_ACTIONS.isdisjoint(draft.actions):
        why = "disruption budgets, pods that have just started and work that would be lost"
        draft.add_note(f"consider adding {', '.join(absent)}: without them evictions ignore {why}")


def _why_no_effect(conf: VolcanoConf, action: str) -> str:
    """Why this action has no effect as it is configured, or empty."""
    if action in _EVICTING and not _any_plugin_enables(conf, "enableJobStarving", _STARVING):
        return "no plugin with enableJobStarving decides which jobs are starving, so Volcano evicts none"
    flag, names, what = _REQUIRED_FLAGS.get(action, ("", (), ""))
    return f"no plugin with {flag} decides {what}" if flag and not _any_plugin_enables(conf, flag, names) else ""


def _any_plugin_enables(conf: VolcanoConf, flag: str, names: tuple[str, ...]) -> bool:
    return any(plugin.is_enabled(flag) for plugin in conf.plugins if plugin.name.text in names)


# -- arguments ---------------------------------------------------------------------------------------------------------------------


def _convert_arguments(conf: VolcanoConf, draft: PolicyDraft) -> None:
    for action, arguments in conf.arguments.items():
        for key in arguments:
            _convert_argument(action, key, arguments, draft)
    named = [action.text for action in conf.actions]
    if "gangpreempt" in named or "gangreclaim" in named:
        draft.settings["wholeGang"] = "domain"
        draft.add_note(
            "wholeGang: domain is what Volcano does: of a whole gang only the members in the HyperNode are evicted; "
            "wholeGang: cluster evicts all of it, so that its job starts anew"
        )


def _convert_argument(action: str, key: str, arguments: Arguments, draft: PolicyDraft) -> None:
    at = arguments.at(key)
    if key in _PERFORMANCE_ONLY:
        draft.add_note(f"{action}: {key} was left out: it is about speed, not about decisions", at, rank=NoteRank.IGNORED)
    elif key == "enableTopologyAwarePreemption":
        if not arguments.is_enabled(key, default=False):
            return
        draft.add_note(f"{action}: {key} was left out: every eviction is simulated with all checks", at, rank=NoteRank.SAME)
    elif key == "maxDomains" and draft.uses("topology"):
        draft.settings["maxEvictDomains"] = max(1, int(arguments.number(key, 8)))
    elif key == "allowWholeBundle":
        if not arguments.is_enabled(key, default=True):
            why = "whole gangs are evicted where surplus members do not suffice"
            draft.add_note(f"{action}: allowWholeBundle: false has no counterpart: {why}", at)
    else:
        draft.add_note(f"{action}: {key} has no counterpart", at)
