"""Volcano's scheduler configuration as it was written: actions, tiers of plugins with flags and arguments, arguments of actions.

Read, not judged: what is no such configuration at all is a fault with its line; what Muster makes of the rest is said elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from muster.yaml_positions import InputFaults, YamlValue

FLAGS = (
    "enableJobOrder",
    "enableHierarchy",
    "enableJobReady",
    "enableJobPipelined",
    "enableTaskOrder",
    "enablePreemptable",
    "enableReclaimable",
    "enablePreemptive",
    "enableQueueOrder",
    "enabledClusterOrder",
    "enablePredicate",
    "enableBestNode",
    "enableNodeOrder",
    "enableTargetJob",
    "enableReservedNodes",
    "enableJobEnqueued",
    "enabledVictim",
    "enableJobStarving",
    "enabledOverused",
    "enabledAllocatable",
    "enabledHyperNodeOrder",
    "enabledSubJobReady",
    "enabledSubJobPipelined",
    "enabledSubJobOrder",
    "enabledHyperNodeGradient",
)
# Volcano switches on every flag that is not given, except these two.
_OFF_BY_DEFAULT = ("enableHierarchy", "enabledClusterOrder")

_KEYS = ("actions", "tiers", "configurations", "metrics")
_PLUGIN_KEYS = ("name", "arguments", *FLAGS)


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a plugin or an action, by dotted key."""

    written: YamlValue
    faults: InputFaults
    where: str

    def __contains__(self, key: str) -> bool:
        return key in self.written.mapping

    def __iter__(self) -> Iterator[str]:
        return iter(self.written.mapping)

    def at(self, key: str) -> YamlValue:
        return self.written.keys.get(key, self.written)

    def get(self, key: str) -> YamlValue:
        return self.written.mapping.get(key, YamlValue(None))

    def number(self, key: str, default: float) -> float:
        """A number, which Volcano takes in quotes as well."""
        given = self.get(key)
        if given.value is None:
            return default
        try:
            if given.is_scalar and not isinstance(given.value, bool):
                return float(given.text or str(given.value))
        except ValueError:
            pass
        self.faults.add(given, f"{key} must be a number, not {given.type_text}", field=f"{self.where}.{key}")
        return default

    def is_enabled(self, key: str, *, default: bool) -> bool:
        given = self.get(key)
        if given.value is None:
            return default
        if isinstance(given.value, bool):
            return given.value
        if given.text.lower() in ("true", "false"):
            return given.text.lower() == "true"
        self.faults.add(given, f"{key} must be true or false, not {given.type_text}", field=f"{self.where}.{key}")
        return default

    def names(self, key: str) -> list[str]:
        """Names in one text, with commas between them."""
        given = self.get(key)
        if given.value is not None and not isinstance(given.value, str):
            self.faults.add(
                given, f"{key} must be names with commas between them, not {given.type_text}", field=f"{self.where}.{key}"
            )
        return [name.strip() for name in given.text.split(",") if name.strip()]


@dataclass(slots=True)
class VolcanoPlugin:
    """One plugin of a tier. `checked_flags` are the flags that were read: the others had no effect."""

    name: YamlValue
    flags: Mapping[str, YamlValue]
    arguments: Arguments
    checked_flags: set[str] = field(default_factory=set)

    def is_enabled(self, flag: str) -> bool:
        """Is this part of the plugin switched on?"""
        self.checked_flags.add(flag)
        given = self.flags.get(flag)
        if given is not None and isinstance(given.value, bool):
            return given.value
        return flag not in _OFF_BY_DEFAULT

    def any_enabled(self, *flags: str) -> bool:
        """Is one of these enabled? All of them count as read."""
        self.checked_flags.update(flags)
        return any(self.is_enabled(flag) for flag in flags)


@dataclass(frozen=True, slots=True)
class VolcanoConf:
    actions: tuple[YamlValue, ...]
    plugins: tuple[VolcanoPlugin, ...]
    """Of all tiers, in their order."""
    arguments: Mapping[str, Arguments]
    """By action."""
    metrics: YamlValue
    faults: InputFaults

    def plugin(self, name: str) -> VolcanoPlugin | None:
        return next((plugin for plugin in self.plugins if plugin.name.text == name), None)


def read_conf(root: YamlValue, faults: InputFaults) -> VolcanoConf:
    if not root.is_mapping:
        faults.add(root, f"a scheduler configuration must be a mapping with the keys {', '.join(_KEYS)}, not {root.type_text}")
    for key, at in root.keys.items():
        if key not in _KEYS:
            faults.unknown(at, "key", _KEYS, field=key)
    return VolcanoConf(
        tuple(_actions(root, faults)),
        tuple(_plugins(root.mapping.get("tiers", YamlValue(())), faults)),
        dict(_configurations(root.mapping.get("configurations", YamlValue(())), faults)),
        root.mapping.get("metrics", YamlValue(None)),
        faults,
    )


def _actions(root: YamlValue, faults: InputFaults) -> Iterator[YamlValue]:
    """The names in the text, each where it stands in it."""
    given = root.mapping.get("actions")
    if given is None or not isinstance(given.value, str) or not given.text.strip():
        example = 'write for example actions: "enqueue, allocate, backfill"'
        if root.is_mapping:
            at = given if given is not None else root
            type_text = "missing" if given is None else f"{given.type_text}, and must be names with commas between them"
            faults.add(at, f"actions is {type_text}: {example}", field="actions")
        return
    for part in given.text.split(","):
        if part.strip():
            yield YamlValue(part.strip(), given.line, given.column, given.width, part.strip())


def _plugins(tiers: YamlValue, faults: InputFaults) -> Iterator[VolcanoPlugin]:
    if not tiers.is_list:
        faults.add(tiers, f"tiers must be a list, not {tiers.type_text}", field="tiers")
    for i, tier in enumerate(tiers.items):
        plugins = tier.mapping.get("plugins")
        if plugins is None or not plugins.is_list:
            faults.add(
                tier,
                f"a tier must be a mapping with the key plugins and a list below it, not {tier.type_text}",
                field=f"tiers[{i}]",
            )
            continue
        for k, plugin in enumerate(plugins.items):
            found = _plugin(plugin, faults, field=f"tiers[{i}].plugins[{k}]")
            if found is not None:
                yield found


def _plugin(written: YamlValue, faults: InputFaults, *, field: str) -> VolcanoPlugin | None:
    name = written.mapping.get("name")
    if name is None or not isinstance(name.value, str):
        faults.add(written, "a plugin must be a mapping with a name", field=field)
        return None
    for key, at in written.keys.items():
        if key not in _PLUGIN_KEYS:
            faults.unknown(at, f"key of plugin {name.text}:", _PLUGIN_KEYS, field=f"{field}.{key}")
    flags = {key: value for key, value in written.mapping.items() if key in FLAGS}
    for key, value in flags.items():
        if not isinstance(value.value, bool | None):
            faults.add(value, f"{key} must be true or false, not {value.type_text}", field=f"{field}.{key}")
    arguments = _arguments(written.mapping.get("arguments", YamlValue(None)), faults, field=f"{field}.arguments")
    return VolcanoPlugin(name, flags, arguments)


def _configurations(given: YamlValue, faults: InputFaults) -> Iterator[tuple[str, Arguments]]:
    if not given.is_list and given.value is not None:
        faults.add(given, f"configurations must be a list, not {given.type_text}", field="configurations")
    for i, each in enumerate(given.items):
        name = each.mapping.get("name")
        if name is None or not isinstance(name.value, str):
            faults.add(each, "a configuration must be a mapping with the name of an action", field=f"configurations[{i}]")
            continue
        yield name.text, _arguments(each.mapping.get("arguments", YamlValue(None)), faults, field=f"configurations[{i}].arguments")


def _arguments(given: YamlValue, faults: InputFaults, *, field: str) -> Arguments:
    if given.value is not None and not given.is_mapping:
        faults.add(given, f"arguments must be a mapping, not {given.type_text}", field=field)
    return Arguments(given if given.is_mapping else YamlValue({}), faults, field)
