"""The subset of Helm's templates that the chart may use: values, the namespace, JSON and checksums."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

_TAG = re.compile(r"\{\{ (\.[\w.]+)(?: \| (toJson|sha256sum))? \}\}")


_FUNCTIONS: dict[str | None, Callable[[Any], str]] = {
    None: str,
    "toJson": json.dumps,
    "sha256sum": lambda text: sha256(text.encode()).hexdigest(),
}


def render(chart: Path, *, namespace: str, **changed: Any) -> list[dict[str, Any]]:
    """The objects that `helm template` would give."""
    values = {**yaml.safe_load((chart / "values.yaml").read_text()), **changed}
    scope = {"Values": values, "Release": {"Namespace": namespace}}
    return [
        document
        for template in sorted((chart / "templates").glob("*.yaml"))
        for document in yaml.safe_load_all(_fill(template.read_text(), scope=scope))
    ]


def _fill(text: str, *, scope: dict[str, Any]) -> str:
    def value(tag: re.Match[str]) -> str:
        found: Any = scope
        for part in tag[1].strip(".").split("."):
            found = found[part]
        return _FUNCTIONS[tag[2]](found)

    filled = _TAG.sub(value, text)
    assert "{{" not in filled, "the chart uses more of Helm than can be tested here"
    return filled
