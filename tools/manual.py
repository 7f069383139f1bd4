"""The parts of the manual that follow from the code: the keys of a policy file, and the hooks of a plugin.

`python -m tools.manual docs` writes them between the marks in docs/policy.md and docs/plugins.md; a test compares.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from muster.config.plugin_check import protocols
from muster.config.plugin_options import REQUIRED, Option, as_yaml, options_of
from muster.config.policy_file import ACTION_DOCS, DEFAULT_POLICY, KEYS, SETTINGS
from muster.engine import hooks
from muster.engine.cycle import ACTIONS
from muster.plugins import PLUGINS


def keys() -> Iterator[str]:
    yield from ("| key | meaning |", "| --- | --- |")
    yield from (f"| `{key}` | {doc} |" for key, doc in KEYS.items())


def default_policy() -> Iterator[str]:
    yield from ("```yaml", *DEFAULT_POLICY.splitlines(), "```")


def actions() -> Iterator[str]:
    yield from ("| action | what it does |", "| --- | --- |")
    yield from (f"| `{name}` | {ACTION_DOCS[name]} |" for name in ACTIONS)


def settings() -> Iterator[str]:
    yield from _options(SETTINGS)


def plugins() -> Iterator[str]:
    for name, make in PLUGINS.items():
        yield from (f"### `{name}`", "", *(inspect.getdoc(make) or "").splitlines(), "")
        if options := options_of(make):
            yield from (*_options(options), "")


def hook_table() -> Iterator[str]:
    yield from (line for line in (hooks.__doc__ or "").splitlines() if line.startswith("|"))


def signatures() -> Iterator[str]:
    """Every hook as the engine declares it, with what its protocol says about it."""
    yield "```text"
    for protocol, methods in protocols().items():
        yield from (f"# {line}" for line in inspect.cleandoc(protocol.__doc__ or "").splitlines())
        for name, value in vars(protocol).items():
            if isinstance(value, property):
                yield f"{name}: {inspect.signature(value.fget).return_annotation}" if value.fget is not None else name
        for name, method in methods.items():
            yield f"def {name}{inspect.signature(method)}: ...".replace("'", "")
    yield "```"


def _options(options: tuple[Option, ...]) -> Iterator[str]:
    yield from ("| option | takes | default | meaning |", "| --- | --- | --- | --- |")
    for option in options:
        default = "needed" if option.default is REQUIRED else f"`{as_yaml(option.default)}`"
        yield f"| `{option.key}` | {option.type_text} | {default} | {option.doc} |"


SECTIONS: Mapping[str, Callable[[], Iterator[str]]] = {
    "keys": keys,
    "default": default_policy,
    "actions": actions,
    "settings": settings,
    "plugins": plugins,
    "hooks": hook_table,
    "signatures": signatures,
}
FILES = ("policy.md", "plugins.md")
_SECTION = re.compile(r"(<!-- (\S+): written by tools\.manual -->\n).*?(<!-- end of \2 -->\n)", re.DOTALL)


def render_page(path: Path) -> str:
    """The page with every part between marks written anew. A part with a dot in its name is a file of examples/."""

    def written(found: re.Match[str]) -> str:
        begin, name, end = found.groups()
        lines = SECTIONS[name]() if name in SECTIONS else _example(path.parent.parent / "examples" / name)
        return begin + "\n".join(lines).rstrip() + "\n" + end

    return _SECTION.sub(written, path.read_text(encoding="utf-8"))


def _example(path: Path) -> Iterator[str]:
    yield f"```{'python' if path.suffix == '.py' else 'yaml'}"
    yield from path.read_text(encoding="utf-8").rstrip().splitlines()
    yield "```"


def main() -> None:
    for file in FILES:
        path = Path(sys.argv[1]) / file
        path.write_text(render_page(path), encoding="utf-8")


if __name__ == "__main__":
    main()
