"""Policy files: which plugins and actions a scheduler runs with. Typed and closed: an unknown name is an error with its line.

`load_policy` reads a file, a text, or the part of a scenario that is a policy. A key that is renamed must stay in `retired_names`;
a key that is added follows from a field and its type hint. The pages in docs that follow from the code are written by
`tools/manual.py`. Tests: tests/config.
"""

from __future__ import annotations

from muster.config.policy_file import DEFAULT_POLICY, PolicyError, default_policy, load_policy

__all__ = ["DEFAULT_POLICY", "PolicyError", "default_policy", "load_policy"]
