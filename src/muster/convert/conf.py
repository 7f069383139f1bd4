"""Volcano's scheduler configuration as it was written: actions, tiers of plugins with flags and arguments, arguments of actions.

Read, not judged: what is no such configuration at all is a fault with its line; what Muster makes of the rest is said elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from muster.yaml_marks import Faults, Marked

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
# These two are off unless they are switched on.
_OFF_BY_DEFAULT = ("enableHierarchy", "enabledClusterOrder")

_KEYS = ("actions", "tiers", "configurations", "metrics")
_PLUGIN_KEYS = ("name", "arguments", *FLAGS)


@dataclass(frozen=True, slots=True)
class Arguments:
    """What somebody wrote for a plugin or an action, by its dotted key."""

    written: Marked
    faults: Faults
    where: str

    def __contains__(self, key: str) -> bool:
        return key in self.written.mapping

    def __iter__(self) -> Iterator[str]:
        return iter(self.written.mapping)

    def at(self, key: str) -> Marked:
        return self.written.keys.get(key, self.written)

    def get(self, key: str) -> Marked:
        return self.written.mapping.get(key, Marked(None))

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
        self.faults.add(given, f"{key} must be a number, not {given.shape}", field=f"{self.where}.{key}")
        return default

    def is_on(self, key: str, *, default: bool) -> bool:
        given = self.get(key)
        if given.value is None:
            return default
        if isinstance(given.value, bool):
            return given.value
        if given.text.lower() in ("true", "false"):
            return given.text.lower() == "true"
        self.faults.add(given, f"{key} must be true or false, not {given.shape}", field=f"{self.where}.{key}")
        return default

    def names(self, key: str) -> list[str]:
        """Names in one text, with commas between them."""
        given = self.get(key)
        if given.value is not None and not isinstance(given.value, str):
            self.faults.add(given, f"{key} must be names with commas between them, not {given.shape}", field=f"{self.where}.{key}")
        return [name.strip() for name in given.text.split(",") if name.strip()]


@dataclass(slots=True)
class TheirPlugin:
    """One plugin of a tier. `asked` are the flags that somebody has looked at: the others were of no consequence."""

    name: Marked
    flags: Mapping[str, Marked]
    arguments: Arguments
    flags_default: bool
    asked: set[str] = field(default_factory=set)

    def has(self, flag: str) -> bool:
        """Is this part of the plugin switched on?"""
        self.asked.add(flag)
        given = self.flags.get(flag)
        if given is not None and isinstance(given.value, bool):
            return given.value
        return self.flags_default and flag not in _OFF_BY_DEFAULT

    def has_any(self, *flags: str) -> bool:
        """One of these? All of them have been asked for then."""
        self.asked.update(flags)
        return any(self.has(flag) for flag in flags)


@dataclass(frozen=True, slots=True)
class TheirConf:
    actions: tuple[Marked, ...]
    plugins: tuple[TheirPlugin, ...]
    """Of all tiers, in their order."""
    arguments: Mapping[str, Arguments]
    """By action."""
    metrics: Marked
    faults: Faults

    def plugin(self, name: str) -> TheirPlugin | None:
        return next((plugin for plugin in self.plugins if plugin.name.text == name), None)


def read_conf(root: Marked, faults: Faults, *, flags_default: bool = True) -> TheirConf:
    """`flags_default` is what a flag means that nobody wrote: Volcano's own reader switches nearly all of them on."""
    if not root.is_mapping:
        faults.add(root, f"a scheduler configuration must be a mapping with the keys {', '.join(_KEYS)}, not {root.shape}")
    for key, at in root.keys.items():
        if key not in _KEYS:
            faults.unknown(at, "key", _KEYS, field=key)
    return TheirConf(
        tuple(_actions(root, faults)),
        tuple(_plugins(root.mapping.get("tiers", Marked(())), faults, flags_default=flags_default)),
        dict(_configurations(root.mapping.get("configurations", Marked(())), faults)),
        root.mapping.get("metrics", Marked(None)),
        faults,
    )


def _actions(root: Marked, faults: Faults) -> Iterator[Marked]:
    """The names in the text, each where it stands in it."""
    given = root.mapping.get("actions")
    if given is None or not isinstance(given.value, str) or not given.text.strip():
        example = 'write for example actions: "enqueue, allocate, backfill"'
        if root.is_mapping:
            at = given if given is not None else root
            shape = "missing" if given is None else f"{given.shape}, and must be names with commas between them"
            faults.add(at, f"actions is {shape}: {example}", field="actions")
        return
    for part in given.text.split(","):
        if part.strip():
            yield Marked(part.strip(), given.line, given.column, given.width, part.strip())


def _plugins(tiers: Marked, faults: Faults, *, flags_default: bool) -> Iterator[TheirPlugin]:
    if not tiers.is_list:
        faults.add(tiers, f"tiers must be a list, not {tiers.shape}", field="tiers")
    for i, tier in enumerate(tiers.items):
        plugins = tier.mapping.get("plugins")
        if plugins is None or not plugins.is_list:
            faults.add(
                tier, f"a tier must be a mapping with the key plugins and a list below it, not {tier.shape}", field=f"tiers[{i}]"
            )
            continue
        for k, plugin in enumerate(plugins.items):
            found = _plugin(plugin, faults, field=f"tiers[{i}].plugins[{k}]", flags_default=flags_default)
            if found is not None:
                yield found


def _plugin(written: Marked, faults: Faults, *, field: str, flags_default: bool) -> TheirPlugin | None:
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
            faults.add(value, f"{key} must be true or false, not {value.shape}", field=f"{field}.{key}")
    arguments = _arguments(written.mapping.get("arguments", Marked(None)), faults, field=f"{field}.arguments")
    return TheirPlugin(name, flags, arguments, flags_default)


def _configurations(given: Marked, faults: Faults) -> Iterator[tuple[str, Arguments]]:
    if not given.is_list and given.value is not None:
        faults.add(given, f"configurations must be a list, not {given.shape}", field="configurations")
    for i, each in enumerate(given.items):
        name = each.mapping.get("name")
        if name is None or not isinstance(name.value, str):
            faults.add(each, "a configuration must be a mapping with the name of an action", field=f"configurations[{i}]")
            continue
        yield name.text, _arguments(each.mapping.get("arguments", Marked(None)), faults, field=f"configurations[{i}].arguments")


def _arguments(given: Marked, faults: Faults, *, field: str) -> Arguments:
    if given.value is not None and not given.is_mapping:
        faults.add(given, f"arguments must be a mapping, not {given.shape}", field=field)
    return Arguments(given if given.is_mapping else Marked({}), faults, field)
