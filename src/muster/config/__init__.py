"""Policy files: which plugins and actions a scheduler runs with. Typed and closed: what is not known is an error that points at it.

`load_policy` reads a file, a text, or the part of a scenario that is a policy; `catalogue` lists what can be written there.
"""

from __future__ import annotations

from muster.config.plugin_catalogue import PluginEntry, catalogue
from muster.config.policy_file import DEFAULT_POLICY, PolicyError, default_policy, load_policy

__all__ = ["DEFAULT_POLICY", "PluginEntry", "PolicyError", "catalogue", "default_policy", "load_policy"]
