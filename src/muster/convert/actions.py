"""Volcano's actions as ours, in an order that makes sense here, and what their arguments become."""

from __future__ import annotations

from collections.abc import Mapping

from muster.convert.conf import Arguments, TheirConf
from muster.convert.draft import Draft
from muster.engine.cycle import ACTIONS
from muster.engine.quota import EVICTING
from muster.yaml_marks import nearest, shown

OURS: Mapping[str, tuple[str, ...]] = {
    "enqueue": ("enqueue",),
    "allocate": ("allocate",),
    "preempt": ("preempt", "gang-preempt"),
    "reclaim": ("gang-reclaim",),
    "gangpreempt": ("gang-preempt",),
    "gangreclaim": ("gang-reclaim",),
}
LEFT_OUT = {
    "backfill": "action backfill was left out: allocate places pods that ask for nothing together with all others",
    "shuffle": "action shuffle has no counterpart: nobody is evicted but for a gang that waits",
}
# Who speaks up in Volcano before anybody is evicted. Where nobody does, nobody is.
_PREEMPTABLE = ("gang", "priority", "conformance", "drf", "tdm", "pdb", "cdp", "extender")
_RECLAIMABLE = ("gang", "conformance", "proportion", "capacity", "drf", "pdb", "cdp", "extender")
_STARVING = ("gang", "priority", "tdm", "extender")
_ENQUEUEABLE = ("proportion", "capacity", "overcommit", "resourcequota", "sla", "extender")
_EVICTING = ("preempt", "reclaim", "gangpreempt", "gangreclaim")
_VOICES = {
    "preempt": ("enablePreemptable", _PREEMPTABLE, "who may go, so Volcano evicts nobody"),
    "reclaim": ("enableReclaimable", _RECLAIMABLE, "who may go, so Volcano evicts nobody"),
    "enqueue": ("enableJobEnqueued", _ENQUEUEABLE, "who may come in, so Volcano lets everybody in"),
}
_SPEED_ONLY = (
    "predicateErrorCacheEnable",
    "topologyAwarePreemptWorkerNum",
    "minCandidateNodesPercentage",
    "minCandidateNodesAbsolute",
    "maxCandidateNodesAbsolute",
)


def convert_actions(conf: TheirConf, draft: Draft) -> None:
    wanted: list[str] = []
    for action in conf.actions:
        name = action.text
        if name in LEFT_OUT:
            draft.tell(LEFT_OUT[name], action)
        elif name not in OURS:
            near = nearest(name, [*OURS, *LEFT_OUT])
            hint = f"; did you mean {near!r}?" if near else ""
            draft.tell(f"unknown action {shown(name)} was left out, as Volcano itself refuses it{hint}", action)
        elif why := _is_idle(conf, name):
            draft.tell(f"action {name} was left out: {why}", action)
        else:
            wanted.extend(each for each in OURS[name] if each not in wanted)
    if "allocate" not in wanted:
        draft.tell("action allocate was added: nothing is ever placed without it")
        wanted.append("allocate")
    draft.actions = [name for name in ACTIONS if name == "expire" or name in wanted]
    if [name for name in wanted if name in draft.actions] != draft.actions[1:]:
        draft.tell(f"the order of the actions is now {', '.join(draft.actions)}: room is made only for those who find none")
    _configure(conf, draft)
    _tell_of_gangs(conf, wanted, draft)
    _advise(draft)


def _tell_of_gangs(conf: TheirConf, wanted: list[str], draft: Draft) -> None:
    """Whom Volcano's gang plugin spares, and what happens to them here."""
    their = conf.plugin("gang")
    if their is None:
        return
    here = "here members that a gang can spare go one by one, and the others with their whole gang"
    for action, ours, flag in (("preempt", "gang-preempt", "enablePreemptable"), ("reclaim", "gang-reclaim", "enableReclaimable")):
        if ours in wanted and any(name.text == action for name in conf.actions):
            theirs = (
                "spares gangs that have no more members than they need" if their.has(flag) else "takes single members of any gang"
            )
            draft.tell(f"gang: with {flag}: {str(their.has(flag)).lower()} Volcano's {action} {theirs}; {here}", their.name)


def _advise(draft: Draft) -> None:
    """What Volcano does not have, and whoever is evicted would be glad of."""
    absent = [name for name in ("pdb", "min_runtime", "lost_work") if not draft.uses(name)]
    if absent and not EVICTING.isdisjoint(draft.actions):
        why = "disruption budgets, pods that have just started and work that would be lost"
        draft.tell(f"consider adding {', '.join(absent)}: without them evictions do not look at {why}")


def _is_idle(conf: TheirConf, action: str) -> str:
    """Why this action has no effect as it is configured, or empty."""
    if action in _EVICTING and not _any_has(conf, "enableJobStarving", _STARVING):
        return "no plugin with enableJobStarving says who is in need, so Volcano evicts nobody"
    flag, names, what = _VOICES.get(action, ("", (), ""))
    return f"no plugin with {flag} says {what}" if flag and not _any_has(conf, flag, names) else ""


def _any_has(conf: TheirConf, flag: str, names: tuple[str, ...]) -> bool:
    return any(plugin.has(flag) for plugin in conf.plugins if plugin.name.text in names)


# -- arguments ---------------------------------------------------------------------------------------------------------------------


def _configure(conf: TheirConf, draft: Draft) -> None:
    for action, arguments in conf.arguments.items():
        for key in arguments:
            _argument(action, key, arguments, draft)
    named = [action.text for action in conf.actions]
    if "gangpreempt" in named or "gangreclaim" in named:
        draft.settings["wholeGang"] = "domain"
        draft.tell(
            "wholeGang: domain is what Volcano does: of a gang that must go only the members in the cleared HyperNode are evicted; "
            "wholeGang: cluster evicts all of it, so that its job starts anew"
        )


def _argument(action: str, key: str, arguments: Arguments, draft: Draft) -> None:
    at = arguments.at(key)
    if key in _SPEED_ONLY:
        draft.tell(f"{action}: {key} was left out: it is about speed, not about decisions", at)
    elif key == "enableTopologyAwarePreemption":
        if not arguments.is_on(key, default=False):
            return
        draft.tell(f"{action}: {key} was left out: every eviction is simulated with all checks", at)
    elif key == "maxDomains" and draft.uses("topology"):
        draft.use("topology", evictDomains=max(1, int(arguments.number(key, 8))))
    elif key == "allowWholeBundle":
        if not arguments.is_on(key, default=True):
            draft.tell(
                f"{action}: allowWholeBundle: false has no counterpart: a whole gang goes where no spare member is enough", at
            )
    else:
        draft.tell(f"{action}: {key} has no counterpart", at)
