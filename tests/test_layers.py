"""The layers of Muster, kept by reading every import.

Each rule is a sentence that says why it stands. Nothing here is imported from Muster: the source is parsed, so a rule
holds for imports inside functions and under TYPE_CHECKING as well. A package that does not exist breaks no rule.
"""

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "muster"

# Low to high. The package's own __init__ lies lowest, because every import of Muster runs it first; the command line
# lies highest, because it starts all the others.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__init__",),
    ("model",),
    ("state",),
    ("engine",),
    ("plugins",),
    ("yaml_positions", "private_file", "literals"),
    ("yaml_reader",),
    ("config", "kube", "decision_log", "queue_report"),
    ("sim", "rotating_decision_log", "json_values"),
    ("scheduler",),
    ("forecast",),
    ("scenario", "replay", "convert", "lab", "trace"),
    ("bench", "crds", "snapshot", "jobs", "cycle_log"),
    ("web",),
    ("service",),
    ("cli",),
    ("__main__",),
)
LAYER_OF = {name: height for height, names in enumerate(LAYERS) for name in names}

CORE = ("model", "state", "engine", "plugins")
IMPURE = ("time", "random", "os", "logging", "asyncio", "threading")
NETWORK = ("aiohttp", "http", "urllib", "requests")
NO_NETWORK = ("urllib", "parse")
"""It only takes addresses apart."""
API_CLIENT = ("kube", "watch", "client")
LAB_CLIENT = ("lab", "servers")
PROBE_SERVER = ("service", "probe_server")
API_SERVERS = (("web", "api_server"), ("web", "http_server"))
PLACEMENT_CHANGES = ("move", "move_many")
CLUSTERS = ("kube", "sim")
"""The packages that translate between a cluster and the model: a real one, a simulated one."""
PURE_IN_KUBE = (
    ("kube", "read"),
    *(("kube", "write", name) for name in ("effect_writes", "merge_patch", "patch_bodies", "status_updates", "write_order")),
)


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name: the dotted path it comes from, and where the import stands."""

    path: tuple[str, ...]
    line: int

    @property
    def dotted(self) -> str:
        return ".".join(self.path)

    @property
    def inside(self) -> tuple[str, ...]:
        """The path below `muster`; empty for anything else, and for `muster` itself."""
        return self.path[1:] if self.path[0] == "muster" else ()


@dataclass(frozen=True, slots=True)
class Module:
    """One source file: its path below src/muster without the suffix, its syntax tree and its imports."""

    file: str
    parts: tuple[str, ...]
    tree: ast.Module
    imports: tuple[Import, ...]

    @property
    def top(self) -> str:
        return self.parts[0]


Violation = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    why: str
    violations: Callable[[Module], Iterator[Violation]]


def violations_of(rule: Rule, *, module: Module) -> list[str]:
    return [f"{module.file}:{line}: {what}. {rule.why}" for line, what in rule.violations(module)]


def parse(file: str, *, source: str) -> Module:
    """Read one module; `file` is its path below src/muster, such as "engine/cycle.py"."""
    parts = tuple(file.removesuffix(".py").split("/"))
    tree = ast.parse(source, filename=file)
    return Module(f"src/muster/{file}", parts, tree, tuple(imports_of(tree, parts=parts)))


def imports_of(tree: ast.Module, *, parts: tuple[str, ...]) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(tuple(alias.name.split(".")), node.lineno)
        elif isinstance(node, ast.ImportFrom):
            origin = origin_of(node, parts=parts)
            for alias in node.names:
                yield Import(narrowed(origin, name=alias.name), node.lineno)


def origin_of(node: ast.ImportFrom, *, parts: tuple[str, ...]) -> tuple[str, ...]:
    """The absolute path of the module named in a from-import: each leading dot goes up one package."""
    named = tuple(node.module.split(".")) if node.module else ()
    if not node.level:
        return named
    here = ("muster", *parts)
    return here[: len(here) - node.level] + named


def narrowed(origin: tuple[str, ...], *, name: str) -> tuple[str, ...]:
    """`from muster import model` means muster.model, but `from muster import __version__` means muster itself."""
    is_value_of_root = origin == ("muster",) and name not in LAYER_OF
    return origin if is_value_of_root or name == "*" else (*origin, name)


def without_a_layer(module: Module) -> Iterator[Violation]:
    if module.top not in LAYER_OF:
        yield 1, f"{module.top} has no layer"


def pointing_up(module: Module) -> Iterator[Violation]:
    height = LAYER_OF.get(module.top, len(LAYERS))
    for found in module.imports:
        top = found.inside[0] if found.inside else module.top
        if top != module.top and LAYER_OF.get(top, len(LAYERS)) >= height:
            yield found.line, f"{module.top} imports {found.dotted}, which does not lie below it"


def plugin_to_plugin(module: Module) -> Iterator[Violation]:
    # The package's own __init__ is the catalogue that names the plugins.
    if module.top != "plugins" or module.parts == ("plugins", "__init__"):
        return
    for found in module.imports:
        shared = len(found.inside) > 1 and found.inside[1].startswith("_")
        if found.inside[:1] == ("plugins",) and not shared:
            yield found.line, f"the plugin {module.parts[-1]} imports {found.dotted}"


def cluster_beyond_model(module: Module) -> Iterator[Violation]:
    if module.top not in CLUSTERS:
        return
    for found in module.imports:
        if found.inside and found.inside[0] not in ("model", *CLUSTERS):
            yield found.line, f"{module.top} imports {found.dotted}"


def cluster_to_cluster(module: Module) -> Iterator[Violation]:
    if module.top not in CLUSTERS:
        return
    for found in module.imports:
        shared = module.top == "sim" and (found.inside[:2] in PURE_IN_KUBE or found.inside[:3] in PURE_IN_KUBE)
        if found.inside[:1] in {(name,) for name in CLUSTERS} and found.inside[0] != module.top and not shared:
            yield found.line, f"{module.top} imports {found.dotted}"


def impure_core(module: Module) -> Iterator[Violation]:
    if module.top in CORE:
        for found in module.imports:
            if found.path[0] in IMPURE:
                yield found.line, f"{module.top} imports {found.dotted}"


def model_beyond_stdlib(module: Module) -> Iterator[Violation]:
    if module.top == "model":
        for found in module.imports:
            if found.path[0] != "muster" and found.path[0] not in sys.stdlib_module_names:
                yield found.line, f"model imports {found.dotted}"


def network_outside_its_modules(module: Module) -> Iterator[Violation]:
    if module.parts not in (API_CLIENT, LAB_CLIENT, PROBE_SERVER, *API_SERVERS):
        for found in module.imports:
            if found.path[0] in NETWORK and found.path[:2] != NO_NETWORK:
                yield found.line, f"{'/'.join(module.parts)} imports {found.dotted}"


def placement_change_outside_state(module: Module) -> Iterator[Violation]:
    if module.top == "state":
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PLACEMENT_CHANGES:
            yield node.lineno, f"{module.top} calls .{node.func.attr}()"


RULES = (
    Rule(
        "every module has a layer",
        "A module that lies in no layer escapes the other rules: give its top-level name a place in LAYERS.",
        without_a_layer,
    ),
    Rule(
        "imports point down",
        "Imports point down only, so that each layer can be read and tested without the ones above or beside it.",
        pointing_up,
    ),
    Rule(
        "plugins are independent",
        "A plugin imports no other plugin, so that any of them can be left out; what they share lies in plugins/_*.py.",
        plugin_to_plugin,
    ),
    Rule(
        "clusters know the model only",
        "kube and sim translate between a cluster and the model; one that sees more of Muster begins to decide.",
        cluster_beyond_model,
    ),
    Rule(
        "clusters are independent",
        "kube and sim do not use each other, so that each can be replaced; "
        "only the simulator shares what is pure in kube (kube/read, and the patches and the order of kube/write), so that both "
        "clusters have the same objects and are written to in the same way.",
        cluster_to_cluster,
    ),
    Rule(
        "the core is pure",
        "Time, randomness and order are inputs of the core, so that a run can be replayed exactly.",
        impure_core,
    ),
    Rule(
        "the model needs only Python",
        "The model is the vocabulary that all layers share, so it must not tie them to a library.",
        model_beyond_stdlib,
    ),
    Rule(
        "one client of the network",
        "Only kube/watch/client.py talks to the network, so that timeouts and retries have one home; "
        "only lab/servers.py may ask the lab's own servers whether they are up, which is before there is a client; "
        "and service/probe_server.py, web/http_server.py and web/api_server.py answer whoever asks, and ask nobody.",
        network_outside_its_modules,
    ),
    Rule(
        "state changes inside a trial",
        "Outside state/ nothing moves a pod by hand: a change made through a trial can be undone, any other cannot.",
        placement_change_outside_state,
    ),
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_source_keeps_the_rule(rule: Rule) -> None:
    found = violations_in_source()[rule.name]
    assert not found, "\n" + "\n".join(found)


@cache
def violations_in_source() -> dict[str, list[str]]:
    """By rule. Every module is parsed once for all of them."""
    found: dict[str, list[str]] = {rule.name: [] for rule in RULES}
    for path in sorted(SOURCE.rglob("*.py")):
        module = parse(path.relative_to(SOURCE).as_posix(), source=path.read_text(encoding="utf-8"))
        for rule in RULES:
            found[rule.name].extend(violations_of(rule, module=module))
    return found


VIOLATIONS = (
    ("every module has a layer", "leftovers.py", "", 1, "leftovers has no layer"),
    ("imports point down", "model/gang.py", "import muster.state", 1, "model imports muster.state"),
    ("imports point down", "state/world.py", "\nfrom muster.engine import cycle", 2, "state imports muster.engine"),
    ("imports point down", "engine/cycle.py", "from muster import config", 1, "engine imports muster.config"),
    ("imports point down", "engine/cycle.py", "from ..plugins.drf import Drf", 1, "engine imports muster.plugins.drf"),
    ("imports point down", "engine/__init__.py", "from .. import cli", 1, "engine imports muster.cli"),
    ("imports point down", "config.py", "from . import sim", 1, "config imports muster.sim"),
    ("imports point down", "scheduler.py", "import muster.scenario.loader", 1, "scheduler imports muster.scenario.loader"),
    ("imports point down", "bench/run.py", "def f():\n    import muster.cli", 2, "bench imports muster.cli"),
    ("imports point down", "__init__.py", "from muster.model import Gang", 1, "__init__ imports muster.model.Gang"),
    ("imports point down", "cli.py", "import muster.nowhere", 1, "cli imports muster.nowhere"),
    ("plugins are independent", "plugins/drf.py", "from muster.plugins import gang", 1, "drf imports muster.plugins.gang"),
    ("plugins are independent", "plugins/drf.py", "from .gang import ready", 1, "drf imports muster.plugins.gang.ready"),
    ("plugins are independent", "plugins/drf.py", "import muster.plugins", 1, "drf imports muster.plugins"),
    ("plugins are independent", "plugins/_shares.py", "from .drf import x", 1, "_shares imports muster.plugins.drf"),
    ("clusters know the model only", "sim/pods.py", "import muster.engine", 1, "imports muster.engine"),
    ("clusters know the model only", "kube/read/wire.py", "from ...state import World", 1, "imports muster.state.World"),
    ("clusters are independent", "kube/watch/client.py", "from ...sim import x", 1, "kube imports muster.sim.x"),
    ("clusters are independent", "sim/pods.py", "from ..kube.watch import client", 1, "sim imports muster.kube.watch.client"),
    ("clusters are independent", "sim/pods.py", "from muster.kube.write import x", 1, "sim imports muster.kube.write.x"),
    ("the core is pure", "engine/cycle.py", "import os.path", 1, "engine imports os.path"),
    *(("the core is pure", f"{top}/x.py", f"import {lib}", 1, f"imports {lib}") for top in CORE for lib in IMPURE),
    ("the model needs only Python", "model/gang.py", "import numpy as np", 1, "model imports numpy"),
    ("the model needs only Python", "model/gang.py", "from msgspec import Struct", 1, "model imports msgspec.Struct"),
    ("one client of the network", "kube/watch/reflector.py", "import aiohttp", 1, "kube/watch/reflector imports aiohttp"),
    (
        "one client of the network",
        "scheduler.py",
        "from urllib.request import urlopen",
        1,
        "scheduler imports urllib.request",
    ),
    ("one client of the network", "cli.py", "import http.client, requests", 1, "cli imports http.client"),
    ("state changes inside a trial", "engine/cycle.py", "\n\nworld.move(pod)", 3, "engine calls .move()"),
    ("state changes inside a trial", "plugins/drf.py", "a.b().move_many([])", 1, "plugins calls .move_many()"),
)


@pytest.mark.parametrize(("name", "file", "source", "line", "what"), VIOLATIONS)
def test_a_violation_is_named_with_its_place_and_the_reason(name: str, file: str, source: str, line: int, what: str) -> None:
    rule = next(rule for rule in RULES if rule.name == name)
    first, *_ = violations_of(rule, module=parse(file, source=source))
    assert first.startswith(f"src/muster/{file}:{line}: ")
    assert what in first
    assert first.endswith(rule.why)


def test_every_rule_has_a_violation_that_shows_it_firing() -> None:
    assert {name for name, *_ in VIOLATIONS} == {rule.name for rule in RULES}


ALLOWED = (
    ("model/gang.py", "from __future__ import annotations\nimport enum\nfrom .key import Key"),
    ("state/trial.py", "import numpy\nworld.move(pod)\nworld.move_many(pods)"),
    ("engine/cycle.py", "from muster import __version__\nfrom muster.state.world import World\nfrom . import order"),
    ("engine/cycle.py", "move(pod)\nplan.moves()\nkey = world.move"),
    ("plugins/__init__.py", "from . import drf, gang"),
    (
        "plugins/drf.py",
        "from muster.plugins._shares import share\nfrom . import _order\nfrom muster.engine import Hook",
    ),
    ("config.py", "import os\nfrom muster.plugins import drf"),
    ("kube/watch/client.py", "import aiohttp, asyncio, urllib.parse\nfrom . import tls\nfrom ..read.wire import WireObject"),
    ("sim/cluster.py", "import random\nfrom ..kube.read.decoder import pod\nfrom muster.kube.write import patch_bodies"),
    ("kube/watch/access.py", "from urllib.parse import urlsplit"),
    ("lab/servers.py", "from http.client import HTTPSConnection"),
    ("scenario/scenario_runner.py", "import time\nfrom muster.sim import Cluster"),
    ("cli/__init__.py", "from muster import bench, service\nfrom muster.scheduler import run"),
)


@pytest.mark.parametrize(("file", "source"), ALLOWED)
def test_what_the_layers_allow_is_no_violation(file: str, source: str) -> None:
    module = parse(file, source=source)
    assert [line for rule in RULES for line in violations_of(rule, module=module)] == []
