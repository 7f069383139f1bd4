"""The subset of Helm's templates that the chart may use: values, the namespace, JSON and checksums, files, and parts that a value
switches on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

_TAG = re.compile(r"\{\{ (\.[\w.]+)(?: \| (toJson|sha256sum))? \}\}")


_IF = re.compile(r"^[ ]*\{\{- if (not )?(\.[\w.]+) \}\}\n(.*?)^[ ]*\{\{- end \}\}\n", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"\{\{ \.Files\.Get \"([\w./]+)\" \| toJson \}\}")

_FUNCTIONS: dict[str | None, Callable[[Any], str]] = {
    None: str,
    "toJson": json.dumps,
    "sha256sum": lambda text: sha256(text.encode()).hexdigest(),
}


def render(chart: Path, *, namespace: str, name: str = "muster", **changed: Any) -> list[dict[str, Any]]:
    """The objects that `helm template` would give."""
    values = {**yaml.safe_load((chart / "values.yaml").read_text()), **changed}
    scope = {"Values": values, "Release": {"Name": name, "Namespace": namespace}}
    return [
        document
        for template in sorted((chart / "templates").glob("*.yaml"))
        for document in yaml.safe_load_all(_fill(template.read_text(), scope=scope, chart=chart))
        if document is not None
    ]


def _fill(text: str, *, scope: dict[str, Any], chart: Path) -> str:
    def found(path: str) -> Any:
        value: Any = scope
        for part in path.strip(".").split("."):
            value = value[part]
        return value

    switched = _IF.sub(lambda tag: tag[3] if bool(found(tag[2])) is not bool(tag[1]) else "", text)
    filled = _TAG.sub(lambda tag: _FUNCTIONS[tag[2]](found(tag[1])), switched)
    assert "{{" not in _FILE.sub("", filled), "the chart uses more of Helm than can be tested here"
    return _FILE.sub(lambda tag: json.dumps((chart / tag[1]).read_text()), filled)
