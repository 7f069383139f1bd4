"""The faults that Cosmic Ray can make in the functions of a set of files, and a sample of them.

A fault is known by its function and by the text of its line before and after, not by a line number, and whether it belongs to the
sample depends on that text and the seed alone. So a change of the code changes the sample only where the code changed.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import CodeType

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

SOURCE = Path(__file__).parents[2] / "src" / "muster"
PARTS = ("engine", "state")
PLUGINS = ("_real_capability", "_runtime_quota", "capacity", "drf", "elastic_quota", "overcommit", "proportion")

# `is` and `==` ask the same of the values that are compared with `is` here: None, and members of an enum.
SAME_QUESTION = ("_Eq_Is", "_Is_Eq", "_NotEq_IsNot", "_IsNot_NotEq")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Fault:
    module: str  # "engine/quota.py"
    line: int
    function: str  # "Quota.headroom"
    before: str
    after: str
    code: CodeType  # of the whole module, with the fault

    @property
    def path(self) -> Path:
        return SOURCE / self.module

    @property
    def key(self) -> str:
        return f"{self.module} {self.function}: {self.before} -> {self.after}"


@dataclass(frozen=True)
class _Place:
    """Where one operator of Cosmic Ray can change something, before it has done so."""

    module: str
    function: str
    line: int
    text: str
    column: int  # from the first character of the text
    kind: str  # "ReplaceBinaryOperator"
    operator: str  # "core/ReplaceBinaryOperator_Add_Sub"
    occurrence: int

    @property
    def spot(self) -> str:
        return f"{self.module} {self.function} {self.text} {self.column} {self.kind}"


def files() -> list[Path]:
    plugins = [SOURCE / "plugins" / f"{name}.py" for name in PLUGINS]
    return sorted([file for part in PARTS for file in (SOURCE / part).rglob("*.py")] + plugins)


def sampled(*, size: int, seed: int, only: str = "") -> list[Fault]:
    """One fault at each of `size` places: an operator with ten alternatives counts no more than one with two. `only`: a module,
    or a module and a function, or the beginnings of these."""
    of_spot: dict[str, list[_Place]] = {}
    for file in files():
        if only.partition(" ")[0] in file.as_posix():
            for spot, place in _numbered(list(_places(file))):
                of_spot.setdefault(spot, []).append(place)
    drawn = sorted((spot for spot in of_spot if only in spot), key=lambda spot: _drawn(seed, spot))
    made = (
        _first_that_compiles(sorted(of_spot[spot], key=lambda place: _drawn(seed, f"{spot} {place.operator}"))) for spot in drawn
    )
    return list(islice((fault for fault in made if fault is not None), size))


def _first_that_compiles(places: list[_Place]) -> Fault | None:
    """Cosmic Ray takes the star of a signature for a multiplication, and the like."""
    for place in places:
        with suppress(SyntaxError):
            return _made(place)
    return None


def _drawn(seed: int, text: str) -> bytes:
    return hashlib.sha256(f"{seed} {text}".encode()).digest()


def _numbered(places: list[_Place]) -> Iterator[tuple[str, _Place]]:
    """Equal lines of one function are told apart by their order."""
    lines: dict[tuple[str, str], list[int]] = {}
    for place in places:
        known = lines.setdefault((place.function, place.text), [])
        if place.line not in known:
            known.append(place.line)
    for place in places:
        yield f"{place.spot} {sorted(lines[place.function, place.text]).index(place.line)}", place


def _places(file: Path) -> Iterator[_Place]:
    source = file.read_text(encoding="utf-8")
    lines, tree = source.splitlines(), ast.parse(source)
    declared, functions = _declarations(tree), functions_by_line(tree)
    nodes = list(ast_nodes(get_ast(source)))
    for name in operator_names():
        operator = get_operator(name)
        if operator.arguments() or name.endswith(SAME_QUESTION):
            continue
        spots = [start for node in nodes for start, _ in operator().mutation_positions(node)]
        for occurrence, (line, column) in enumerate(spots):
            if (line, column) in declared or line not in functions:
                continue
            text = lines[line - 1]
            indent = len(text) - len(text.lstrip())
            yield _Place(
                module=file.relative_to(SOURCE).as_posix(),
                function=functions[line],
                line=line,
                text=text.strip(),
                column=column - indent,
                kind=name.partition("/")[2].partition("_")[0],
                operator=name,
                occurrence=occurrence,
            )


def _made(place: _Place) -> Fault:
    source = (SOURCE / place.module).read_text(encoding="utf-8")
    code = mutate_code(source, get_operator(place.operator)(), place.occurrence)
    old, new = source.splitlines(), code.splitlines()
    changed = [at for at, (before, after) in enumerate(zip(old, new, strict=False)) if before != after]
    before, after = (" ".join(text[at].strip() for at in changed) for text in (old, new))
    with warnings.catch_warnings():  # `0 is not x` is bad style, which is no way to notice a fault
        warnings.simplefilter("ignore", SyntaxWarning)
        return Fault(place.module, place.line, place.function, before, after, compile(code, str(SOURCE / place.module), "exec"))


def functions_by_line(tree: ast.Module) -> dict[int, str]:
    """The outermost function of each line of a body. Signatures, decorators and constants are the business of a reader."""
    found: dict[int, str] = {}
    for name, node in _outermost(tree, ""):
        for line in range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1):
            found[line] = name
    return found


def _outermost(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _outermost(child, f"{prefix}{child.name}.")
        else:
            yield from _outermost(child, prefix)


class _Declared:
    """Positions within some nodes."""

    def __init__(self, nodes: list[ast.expr]) -> None:
        self._spans = [(node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0) for node in nodes]

    def __contains__(self, at: tuple[int, int]) -> bool:
        return any((first, left) <= at < (last, right) for first, left, last, right in self._spans)


def _declarations(tree: ast.Module) -> _Declared:
    """Annotations, which only the type checker reads."""
    found = [node.annotation for node in ast.walk(tree) if isinstance(node, ast.AnnAssign | ast.arg)]
    found += [node.returns for node in ast.walk(tree) if isinstance(node, Function)]
    return _Declared([annotation for annotation in found if annotation is not None])
