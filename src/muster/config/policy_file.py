"""From a policy file to a Policy: its keys, and combinations that are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import yaml

from muster.config import retired_names
from muster.config.plugin_check import plugin_errors
from muster.config.plugin_lookup import find_plugin
from muster.config.plugin_options import Option, options_of, read_options, read_value
from muster.config.retired_names import is_retired
from muster.engine.cycle import ACTIONS
from muster.engine.hooks import Plugin, Policy
from muster.engine.policy_settings import DEFAULT_SETTINGS, PolicySettings
from muster.plugins.binpack import Binpack
from muster.plugins.capacity import Capacity
from muster.plugins.fit import Fit
from muster.plugins.proportion import Proportion
from muster.plugins.spread import Spread
from muster.yaml_positions import InputError, InputFaults, YamlValue, yaml_value
from muster.yaml_reader import read_yaml

DEFAULT_POLICY = """\
schedulerNames: [muster]
actions: [expire, enqueue, allocate, preempt, gang-preempt, job-preempt, gang-reclaim]
plugins:
# Order of gangs and queues, and quotas.
- priority
- capacity
- elastic-quota
# Filters.
- topology
- unschedulable
- selectors
- taints
- volumes
- ports
- fit
- devices
- pod-affinity
- spread-constraints
# Scores.
- binpack: {fragments: true}
- node-affinity-preference
- taint-preference
- pod-affinity-preference
- nominated
# Victims.
- pdb
- min-runtime: {actions: [gang-reclaim]}
- lost-work
settings:
  victimSchedulers: []
  wholeGang: cluster
  strictDeserved: false
  order: surplus
  reclaimFor: deserved
  preemptWithinParent: Never
  usageHalfLifeSeconds: 0
  evictDomains: best
  maxEvictDomains: 8
  maxPlacements: 4096
  maxRefusedAttempts: 16
  evictionPauseSeconds: 60
  maxEvictionPauseSeconds: 1800
  moveEverySeconds: 3600
  movableQueues: []
  nominationSeconds: 600
  evictionCooldownSeconds: 600
  defaultPermitWaitSeconds: 600
  adoptVolcano: false
  staleSeconds: 600
  reserveAfterSeconds: 600
  maxReservedIdlePercent: 10
"""

KEYS: Mapping[str, str] = {
    "schedulerNames": "Pods whose `spec.schedulerName` is one of these are scheduled by Muster.",
    "actions": "What a cycle does, in this order.",
    "plugins": "The plugins, in this order: a name, or a mapping of one name to its options.",
    "settings": "What belongs to no plugin.",
    "base": "`default`: `plugins` changes the plugins of the default policy, one or one option at a time; `pdb: false` drops one.",
}
ACTION_DOCS: Mapping[str, str] = {
    "expire": "Ends what has timed out: permit waits, and nominations that can no longer be bound.",
    "enqueue": "Decides which PodGroups are enqueued, so that their pods are attempted, and why the others are not.",
    "allocate": "Places gangs on free capacity in their order, each whole or not at all; binds the nominated.",
    "consolidate": "Moves pods for a gang that did not fit though as much as it asks for is free: see docs/consolidation.md.",
    "preempt": "Evicts for one pod that did not fit, on the node where that costs least: pods of lower priority in its own queue.",
    "gang-preempt": "Evicts for a gang that did not fit, in one domain: pods of lower priority in its own queue.",
    "gang-reclaim": "Evicts for a gang that still does not fit: pods of queues that use more than they deserve.",
    "job-preempt": "Evicts for a whole job in an ElasticQuota: preemptible pods of lower priority.",
}
SETTINGS: tuple[Option, ...] = tuple(option for option in options_of(PolicySettings) if option.key not in KEYS)

ALLOCATE = "allocate"
# These prepare what allocate decides on; every other action evicts for gangs that it could not place.
_BEFORE_ALLOCATE = ("expire", "enqueue")


class PolicyError(InputError):
    """A policy that cannot be used, with all its faults."""


def default_policy() -> Policy:
    return load_policy(DEFAULT_POLICY, file="<default policy>")


def load_policy(source: YamlValue | Mapping[str, object] | Path | str, *, file: str = "<policy>") -> Policy:
    """A Policy from a file (Path), its text, or what was read of it. A key that is absent has the value of the default policy."""
    if isinstance(source, Path):
        file = str(source)
        source = _read_file(source)
    faults = InputFaults(file, PolicyError)
    try:
        root = _read(source, file=file, faults=faults) if isinstance(source, str) else yaml_value(source)
    except InputError as error:
        raise PolicyError(error.faults) from error
    text = source if isinstance(source, str) else yaml.safe_dump(root.plain(), sort_keys=False)
    policy = _policy(root, text, faults)
    faults.raise_any()
    return policy


def _read(text: str, *, file: str, faults: InputFaults) -> YamlValue:
    return _default_root() if text == DEFAULT_POLICY else read_yaml(text, file=file, faults=faults)


@cache
def _default_root() -> YamlValue:
    return read_yaml(DEFAULT_POLICY, file="<default policy>")


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        faults = InputFaults(str(path), PolicyError)
        faults.add(YamlValue(None), f"this file cannot be read: {error.strerror if isinstance(error, OSError) else error}")
        faults.raise_any()
        raise


def _policy(root: YamlValue, text: str, faults: InputFaults) -> Policy:
    default = _default_root().mapping
    if not root.is_mapping and root.value is not None:
        faults.add(root, f"a policy must be a mapping with the keys {', '.join(KEYS)}, not {root.type_text}")
    for key, at in root.keys.items():
        if key not in KEYS:
            faults.unknown(at, "key", KEYS, field=key)
    given = {key: root.mapping.get(key, default.get(key, YamlValue(None))) for key in KEYS}
    if given["base"].value is not None:
        if given["base"].text != "default":
            faults.add(given["base"], f"base must be default, not {given['base'].type_text}", field="base", suggestion="default")
        given["plugins"] = _changed_plugins(default["plugins"], given["plugins"])
    actions = _actions(given["actions"], faults)
    plugins = _plugins(given["plugins"], faults)
    settings = _settings(given["settings"], _scheduler_names(given["schedulerNames"], faults), faults)
    return Policy(plugins, actions, settings=settings, source=text)


def _scheduler_names(given: YamlValue, faults: InputFaults) -> tuple[str, ...]:
    field = "schedulerNames"
    names = list(_text_items(given, field, "a list of scheduler names", faults))
    if given.is_list and not given.items:
        faults.add(given, "schedulerNames is empty: no pod would be scheduled", field=field)
    for i, name in enumerate(names):
        if not name.text:
            faults.add(name, "a scheduler name may not be empty", field=f"{field}[{i}]")
    _check_duplicates(names, "scheduler name", field, faults)
    return tuple(name.text for name in names)


def _settings(given: YamlValue, names: tuple[str, ...], faults: InputFaults) -> PolicySettings:
    if not given.is_mapping:
        faults.add(given, f"settings must be a mapping, not {given.type_text}", field="settings")
    known = {option.key: option for option in SETTINGS}
    changes: dict[str, object] = {}
    for key, value in given.mapping.items():
        if key not in known:
            _unknown_setting(given.keys[key], known, faults)
            continue
        changes[known[key].field] = read_value(value, known[key], faults, field=f"settings.{key}")
    if len(faults):
        return DEFAULT_SETTINGS
    return replace(DEFAULT_SETTINGS, scheduler_names=names, **changes)  # type: ignore[arg-type]


def _unknown_setting(at: YamlValue, known: Mapping[str, Option], faults: InputFaults) -> None:
    field = f"settings.{at.text}"
    if not is_retired(at, "setting", retired_names.SETTINGS, faults, field=field):
        faults.unknown(at, "setting", known, field=field)


# -- actions -----------------------------------------------------------------------------------------------------------------------


def _actions(given: YamlValue, faults: InputFaults) -> tuple[str, ...]:
    names = list(_text_items(given, "actions", "a list of actions", faults))
    for i, name in enumerate(names):
        if name.text not in ACTIONS:
            faults.unknown(name, "action", ACTIONS, field=f"actions[{i}]")
    _check_duplicates(names, "action", "actions", faults)
    _check_order(given, names, faults)
    return tuple(name.text for name in names)


def _check_order(given: YamlValue, names: list[YamlValue], faults: InputFaults) -> None:
    at = next((i for i, name in enumerate(names) if name.text == ALLOCATE), None)
    if at is None:
        if given.is_list:
            faults.add(given, "the action allocate is missing: nothing would ever be placed", field="actions")
        return
    for i, name in enumerate(names):
        if name.text in _BEFORE_ALLOCATE and i > at:
            faults.add(name, f"{name.text} must come before allocate, which decides on its result", field=f"actions[{i}]")
        elif name.text in ACTIONS and name.text not in (*_BEFORE_ALLOCATE, ALLOCATE) and i < at:
            why = "or pods are evicted for a gang that fits without"
            faults.add(name, f"{name.text} must come after allocate, {why}", field=f"actions[{i}]")


# -- plugins -----------------------------------------------------------------------------------------------------------------------


def _plugins(given: YamlValue, faults: InputFaults) -> tuple[Plugin, ...]:
    if not given.is_list:
        faults.add(given, f"plugins must be a list of plugins, not {given.type_text}", field="plugins")
        return ()
    if not given.items:
        faults.add(
            given,
            "plugins is empty: no plugin would decide anything, and nodes would be filled beyond what they have",
            field="plugins",
        )
        return ()
    found: list[tuple[YamlValue, Plugin]] = []
    before = len(faults)
    for i, item in enumerate(given.items):
        named = _name_and_options(item, f"plugins[{i}]", faults)
        if named is not None and (plugin := _plugin(*named, f"plugins[{i}]", faults)) is not None:
            found.append((named[0], plugin))
    _check_names(found, faults)
    # A plugin that could not be read may be the one that is missing.
    _check_combinations(given, found, faults, complete=len(faults) == before)
    return tuple(plugin for _, plugin in found)


def _changed_plugins(base: YamlValue, changes: YamlValue) -> YamlValue:
    """The base's plugins in their places with the options that are changed; those that are new come last, and `false` drops one."""
    if not changes.is_list or changes is base:
        return changes
    items = {_plugin_name(item): item for item in base.items}
    for number, item in enumerate(changes.items):
        name = _plugin_name(item) or str(number)
        options = item.mapping.get(name)
        if options is not None and options.value is False:
            items.pop(name, None)
        else:
            items[name] = _with_options(items.get(name), item, name)
    return replace(changes, value=tuple(items.values()))


def _plugin_name(item: YamlValue) -> str:
    return item.value if isinstance(item.value, str) else next(iter(item.mapping), "")


def _with_options(base: YamlValue | None, item: YamlValue, name: str) -> YamlValue:
    kept = base.mapping.get(name) if base is not None else None
    changed = item.mapping.get(name)
    if kept is None or changed is None or not changed.is_mapping:
        return item if kept is None or changed is not None else replace(item, value={name: kept}, keys={name: item})
    options = replace(changed, value={**kept.mapping, **changed.mapping}, keys={**kept.keys, **changed.keys})
    return replace(item, value={name: options})


def _name_and_options(item: YamlValue, field: str, faults: InputFaults) -> tuple[YamlValue, YamlValue] | None:
    """The name of a plugin and its options: `binpack`, or `binpack: {weight: 2}`."""
    if isinstance(item.value, str):
        return item, YamlValue(None)
    if not item.is_mapping:
        faults.add(item, f"a plugin is a name, or a mapping of one name to its options, not {item.type_text}", field=field)
        return None
    if len(item.mapping) != 1:
        at = list(item.keys.values())[1] if len(item.keys) > 1 else item
        faults.add(at, f"one plugin to an item, not {len(item.mapping)}: begin a new line with `- `", field=field)
        return None
    name, options = next(iter(item.mapping.items()))
    return item.keys[name], options


def _plugin(name: YamlValue, given: YamlValue, field: str, faults: InputFaults) -> Plugin | None:
    make = find_plugin(name, faults, field=field)
    if make is None:
        return None
    options = read_options(make, name, given, faults, field=f"{field}.{name.text}")
    if options is None:
        return None
    try:
        plugin: Plugin = make(**options)
    except (TypeError, ValueError) as error:
        faults.add(name, f"plugin {name.text}: {error}", field=field)
        return None
    errors = plugin_errors(plugin)
    for error_text in errors:
        faults.add(name, f"plugin {name.text} {error_text}", field=field)
    return None if errors else plugin


def _check_names(found: list[tuple[YamlValue, Plugin]], faults: InputFaults) -> None:
    first: dict[str, YamlValue] = {}
    for at, plugin in found:
        if plugin.name in first:
            faults.add(at, f"plugin {plugin.name} is given twice, first on line {first[plugin.name].line}", field="plugins")
        first.setdefault(plugin.name, at)


def _check_combinations(given: YamlValue, found: list[tuple[YamlValue, Plugin]], faults: InputFaults, *, complete: bool) -> None:
    if complete and not any(plugin.name == Fit.name for _, plugin in found):
        faults.add(given, "the plugin fit is missing: nodes would be filled beyond what they have", field="plugins")
    shares = [(at, plugin) for at, plugin in found if isinstance(plugin, Capacity | Proportion)]
    if len(shares) > 1:
        why = "capacity and proportion both define what a queue deserves: the one by what was configured, the other by weight"
        faults.add(shares[1][0], f"{why}. Leave one out", field="plugins")
    pack = next((plugin for _, plugin in found if isinstance(plugin, Binpack)), None)
    for at, plugin in found:
        if isinstance(plugin, Spread) and pack is not None and _cancel_out(pack, plugin):
            why = f"binpack and spread cancel out: both have the weight {plugin.weight:g} on the same resources"
            faults.add(at, f"{why}. Leave one out, or give them different weights or resources", field="plugins")


def _cancel_out(pack: Binpack, spread: Spread) -> bool:
    return pack.weight == spread.weight and dict(pack.resources) == dict(spread.resources)


# -- lists -------------------------------------------------------------------------------------------------------------------------


def _text_items(given: YamlValue, field: str, what: str, faults: InputFaults) -> Iterator[YamlValue]:
    if not given.is_list:
        faults.add(given, f"{field} must be {what}, not {given.type_text}", field=field)
    for i, item in enumerate(given.items):
        if isinstance(item.value, str):
            yield item
        else:
            faults.add(item, f"{field} must be {what}, not of {item.type_text}", field=f"{field}[{i}]")


def _check_duplicates(names: list[YamlValue], what: str, field: str, faults: InputFaults) -> None:
    for i, name in enumerate(names):
        if any(other.text == name.text for other in names[:i]):
            faults.add(name, f"{what} {name.text} is given twice", field=f"{field}[{i}]")
