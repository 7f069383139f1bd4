"""What can be written into a policy file: every plugin with its hooks and options, for people and for the manual."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from muster.config.plugin_check import hooks_of
from muster.config.plugin_lookup import PluginFactory, installed_plugins
from muster.config.plugin_options import BadOptions, Option, options_of
from muster.plugins import PLUGINS


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """One plugin. `origin` is `built in`, or the package and class that offer it; `problem` is why it cannot be used, or empty."""

    name: str
    doc: str
    hooks: tuple[str, ...]
    options: tuple[Option, ...]
    origin: str = "built in"
    problem: str = ""

    @property
    def summary(self) -> str:
        """The first sentence of what it is for."""
        return self.doc.split("\n\n", 1)[0]


def catalogue() -> tuple[PluginEntry, ...]:
    """Our own plugins in the order in which they are documented, then those that installed packages offer."""
    found = [_entry(name, make, "built in") for name, make in PLUGINS.items()]
    for name, offered in installed_plugins().items():
        package = offered.dist.name if offered.dist is not None else "?"
        origin = f"{package} ({offered.value})"
        try:
            found.append(_entry(name, offered.load(), origin))
        except Exception as error:  # Whatever somebody else's package does when it is imported, the others are still listed.
            found.append(PluginEntry(name, "", (), (), origin, f"{type(error).__name__}: {error}"))
    return tuple(found)


def _entry(name: str, make: PluginFactory, origin: str) -> PluginEntry:
    doc = inspect.getdoc(make) or ""
    hooks = tuple(hook.name for hook in hooks_of(make))
    try:
        return PluginEntry(name, doc, hooks, options_of(make), origin)
    except BadOptions as error:
        return PluginEntry(name, doc, hooks, (), origin, str(error))
