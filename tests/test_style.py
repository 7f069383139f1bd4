"""How the source reads, as far as it can be counted: short and simple functions, and names with one meaning.

What does not keep a rule yet is listed by name. The lists only ever get shorter: nothing may be added, and what keeps its rule is
taken off.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "muster"

MOST_LINES = 60
MOST_PATHS = 15

TOO_LONG: frozenset[str] = frozenset()
TOO_COMPLEX: frozenset[str] = frozenset()
DEFINED_TWICE: frozenset[str] = frozenset()

Function = ast.FunctionDef | ast.AsyncFunctionDef
BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def functions() -> Iterator[tuple[str, Function]]:
    for file, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield f"{file} {node.name}", node


def length(function: Function) -> int:
    """Its lines, signature and docstring included, decorators not."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def complexity(function: Function) -> int:
    """The cyclomatic complexity. Stricter than ruff's C901: each `and`, `or` and loop of a comprehension is a path too."""
    paths = 1
    for node in ast.walk(function):
        if isinstance(node, BRANCHES):
            paths += 1
        elif isinstance(node, ast.BoolOp):
            paths += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            paths += 1 + len(node.ifs)
    return paths


def defined_types(tree: ast.Module) -> Iterator[str]:
    """The classes of a module, nested ones included, and its type aliases."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            if isinstance(statement.annotation, ast.Name) and statement.annotation.id == "TypeAlias":
                yield statement.target.id
        elif isinstance(statement, ast.Assign) and _is_type_expression(statement.value):
            yield from (target.id for target in statement.targets if isinstance(target, ast.Name) and _is_type_name(target.id))


def _is_type_expression(value: ast.expr) -> bool:
    return isinstance(value, ast.Name | ast.Attribute | ast.Subscript | ast.BinOp)


def _is_type_name(name: str) -> bool:
    """`Amounts`, not `AMOUNTS` and not `T`."""
    plain = name.lstrip("_")
    return plain[:1].isupper() and plain != plain.upper()


def test_no_function_is_too_long() -> None:
    found = {name: length(function) for name, function in functions() if length(function) > MOST_LINES}
    assert not found.keys() - TOO_LONG, {name: found[name] for name in found.keys() - TOO_LONG}


def test_no_function_has_too_many_paths() -> None:
    found = {name: complexity(function) for name, function in functions() if complexity(function) > MOST_PATHS}
    assert not found.keys() - TOO_COMPLEX, {name: found[name] for name in found.keys() - TOO_COMPLEX}


def test_a_module_has_a_file_name_of_its_own() -> None:
    """Plugins are exempt: a plugin is named as its policy entry, whatever modules elsewhere are called."""
    files = defaultdict(list)
    for file, _ in trees():
        if not file.endswith("__init__.py") and not file.startswith("plugins/"):
            files[Path(file).name].append(file)
    assert {name: some for name, some in files.items() if len(some) > 1} == {}


def test_what_tests_share_has_a_file_name_of_its_own() -> None:
    files = defaultdict(list)
    for folder in (TESTS, TESTS.parent / "benchmarks"):
        for path in sorted(folder.rglob("*.py")):
            if not path.name.startswith(("test_", "__init__", "conftest")):
                files[path.name].append(path.relative_to(TESTS.parent).as_posix())
    assert {name: some for name, some in files.items() if len(some) > 1} == {}


def test_a_type_name_has_one_meaning() -> None:
    homes = defaultdict(list)
    for file, tree in trees():
        for name in defined_types(tree):
            homes[name].append(file)
    assert {name: files for name, files in homes.items() if len(files) > 1 and name not in DEFINED_TWICE} == {}


@pytest.mark.parametrize(
    ("source", "paths"),
    [
        ("def f(): return 1", 1),
        ("def f(a):\n    if a and a > 1:\n        return 1\n    return 2", 3),
        ("def f(a): return [x for x in a if x]", 3),
        ("def f(a):\n    match a:\n        case 1: return 1\n        case _: return 2", 3),
    ],
)
def test_paths_are_counted(source: str, paths: int) -> None:
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    assert complexity(function) == paths
