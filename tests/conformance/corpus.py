"""Cases of the conformance corpus: one scheduling session each, as data, with what Volcano did.

The corpus lies beside the project, in `../shared/conformance`, or where MUSTER_CONFORMANCE says. Each file is a list of cases.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def meta_of(written: Mapping[str, Any]) -> Json:
    """The metadata of an object; empty where it has none."""
    return dict(written.get("metadata") or {})


def spec_of(written: Mapping[str, Any]) -> Json:
    """The spec of an object; empty where it has none."""
    return dict(written.get("spec") or {})


def name_of(written: Mapping[str, Any]) -> str:
    return str(meta_of(written).get("name") or "")


def annotations_of(written: Mapping[str, Any]) -> Json:
    return dict(meta_of(written).get("annotations") or {})


FOLDER_VARIABLE = "MUSTER_CONFORMANCE"
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Case:
    """One case as it was written; the properties are what the runner asks for most."""

    written: Mapping[str, Any]
    file: str

    @property
    def id(self) -> str:
        return str(self.written["id"])

    @property
    def is_probe(self) -> bool:
        return bool(self.written.get("kind") == "probe")

    @property
    def actions(self) -> list[str]:
        return list(self.written.get("actions") or ())

    @property
    def plugins(self) -> list[Json]:
        """Those that are loaded, of all tiers."""
        return [plugin for tier in self.written.get("plugins") or () for plugin in tier if plugin.get("registered", True)]

    def plugin(self, name: str) -> Json | None:
        return next((plugin for plugin in self.plugins if plugin["name"] == name), None)

    def has(self, name: str, flag: str) -> bool:
        """Is this flag of a plugin on? What is not said is off here."""
        plugin = self.plugin(name)
        return plugin is not None and bool((plugin.get("enabled") or {}).get(flag))

    def objects(self, kind: str) -> list[Json]:
        return list((self.written.get("objects") or {}).get(kind) or ())

    @property
    def features(self) -> list[str]:
        return list(self.written.get("features") or ())

    @property
    def expect(self) -> Json:
        """What upstream asserts, without what holds only in its own test rig."""
        rig_only = self.written.get("expect_rig_only") or {}
        return {key: value for key, value in (self.written.get("expect") or {}).items() if key not in rig_only}

    @property
    def actual(self) -> Json:
        return dict(self.written.get("actual") or {})

    @property
    def is_stable(self) -> bool:
        return bool(self.written.get("stable"))

    @property
    def unstable(self) -> list[str]:
        return list(self.written.get("unstable") or ())

    @property
    def counts_stable(self) -> bool:
        return bool(self.written.get("counts_stable"))


def folder() -> Path:
    return Path(os.environ.get(FOLDER_VARIABLE) or ROOT.parent / "shared" / "conformance").resolve()


def load(where: Path) -> list[Case]:
    """All cases below a folder, in the order of their files. A folder that is not there has none."""
    found: list[Case] = []
    for path in sorted(where.rglob("*.json")):
        cases = json.loads(path.read_text(encoding="utf-8"))
        name = path.relative_to(where).with_suffix("").as_posix()
        found.extend(Case(case, name) for case in cases)
    return found
