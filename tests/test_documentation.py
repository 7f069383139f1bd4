"""The documents speak of what exists: files, links, words and versions."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from tests.test_layers import LAYERS

from muster import __version__
from muster.config import load_policy
from muster.config.policy_warnings import UNCHECKED
from muster.config.retired_names import OPTIONS, PLUGINS, SETTINGS
from muster.scenario.key_tables import KEY_TABLES, RETIRED_KEYS
from muster.service.metric_specs import METRICS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "muster"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
MOST_WORDS = 30
WITH_OLD_WORDS = ("CHANGELOG.md",)
ALLOWED_HERE = ("Volcano: bundle", "'held' is now 'reserved'")
"""A word of others that the glossary explains, and an error that names the present key."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def table_rows(text: str) -> list[list[str]]:
    """All rows of all tables, their heads left out."""
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in text.splitlines() if line.startswith("|")]
    heads = {at - 1 for at, row in enumerate(rows) if all(set(cell) <= {"-"} for cell in row)}
    return [row for at, row in enumerate(rows) if at not in heads and at - 1 not in heads]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_to_a_file_or_heading_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        name, _, heading = target.partition("#")
        file = document.parent / name if name else document
        assert file.exists(), target
        if heading:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in headings}, target


def test_every_page_is_in_the_table_of_what_to_read() -> None:
    listed = set(re.findall(r"\]\((docs/[^)#]+\.md)", text_of("README.md").split("| to read |", 1)[1]))
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} - listed == set()


# -- the glossary ------------------------------------------------------------------------------------------------------------------


def glossary() -> list[list[str]]:
    return table_rows(text_of("GLOSSARY.md"))


def test_the_glossary_has_at_most_thirty_words_each_with_a_meaning_and_its_name_elsewhere() -> None:
    rows = glossary()
    assert 0 < len(rows) <= MOST_WORDS
    assert all(len(row) == 3 and all(row) for row in rows)
    assert all(re.fullmatch(r"\*\*[a-z-]+\*\*", word) for word, *_ in rows)


def test_the_meaning_of_each_word_is_one_sentence() -> None:
    for word, meaning, _ in glossary():
        assert meaning.endswith("."), word
        assert ". " not in meaning, word


def test_every_word_of_the_glossary_occurs_in_the_source() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    used = set(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", source).lower()))
    words = {word.strip("*") for word, *_ in glossary()}
    assert words <= used, words - used


RETIRED = (
    *("lone pods?", "dialects?", "laws?", "breach(?:es)?", "seats?", "deeds?", "wish(?:es)?", "islands?", "redeem(?:s|ed|ing)?"),
    *("promised?", "promises", "gathering", "clearing", "half bound", "bundles?", "rosters?", "graves?", "scribe", "entangled"),
    *("room", "spare(?:d|s)?", "told", "wakes?", "holding", "held", "NoRoom", "ClaimLost", "Gathering", "Clearing"),
)
"""Words that an engineer had to learn before: the glossary and the changelog say what is written instead."""


@pytest.mark.parametrize("document", [page for page in DOCUMENTS if page.name not in WITH_OLD_WORDS], ids=lambda path: path.name)
def test_no_document_uses_a_retired_word(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for allowed in ALLOWED_HERE:
        text = text.replace(allowed, "")
    assert re.findall(rf"^.*\b(?:{'|'.join(RETIRED)})\b.*$", text, flags=re.MULTILINE) == []


RETIRED_IN_CODE = (
    *("deeds?", "seats?", "onenode", "heirs", "census", "rosters?", "gangbook", "graves?", "scribe", "annals", "venues?", "lone"),
    *("dialects?", "redeem(?:s|ed|ing)?", "islands?", "wish(?:es)?", "village", "story", "breach(?:es)?", "laws?", "gathering"),
    *("unseated", "entangled", "blame[sd]?"),
)
"""Those that have no other meaning in a module, whatever it is about."""
CODE = sorted(path for folder in ("src", "tests", "benchmarks", "tools", "examples") for path in (ROOT / folder).rglob("*.py"))
SPEAKS_OF_OLD_WORDS = ("test_documentation.py", "key_tables.py", "retired_names.py", "retired_options.py")
ALLOWED_IN_CODE = ('SINGLE_POD = "lone"', "lone surrogates", "muster.dev/device-islands")
"""What Histories of clusters have, Unicode's own word, and an annotation that is reported with its present name."""


def test_no_module_and_no_scenario_uses_a_retired_word() -> None:
    retired = re.compile(rf"^.*(?:\b|_)(?:{'|'.join(RETIRED_IN_CODE)})(?:\b|_).*$", flags=re.MULTILINE | re.IGNORECASE)
    files = [path for path in CODE if path.name not in SPEAKS_OF_OLD_WORDS] + sorted((ROOT / "scenarios").rglob("*.yaml"))
    found = {path.relative_to(ROOT).as_posix(): retired.findall(_without_allowed(path)) for path in files}
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert [path for path in files if retired.search(path.stem.replace("-", "_"))] == []


def _without_allowed(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    for allowed in ALLOWED_IN_CODE:
        text = text.replace(allowed, "")
    return text


# -- files -------------------------------------------------------------------------------------------------------------------------


def files_named(document: str) -> list[str]:
    """Paths in backquotes that end in .py or in a slash: `engine/cycle.py`, `state/gangs/`, `src/muster/config/`."""
    return re.findall(r"`((?:[\w-]+/)+(?:[\w-]+\.py)?)`", text_of(document))


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_that_is_named_exists(document: str) -> None:
    named = files_named(document)
    assert named
    for name in named:
        assert any((base / name).exists() for base in (ROOT, SOURCE, SOURCE / "engine" / "evict")), name


PACKAGES = [path for path in sorted(SOURCE.rglob("__init__.py")) if path.parent != SOURCE]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.parent.relative_to(SOURCE).as_posix())
def test_a_package_says_what_may_be_changed_what_must_hold_and_where_its_tests_are(package: Path) -> None:
    text = ast.get_docstring(ast.parse(package.read_text(encoding="utf-8"))) or ""
    assert re.search(r"\b([Cc]hanged?|added)\b", text)
    assert re.search(r"\b[Mm]ust\b", text)
    named = re.findall(r"\btests/[\w/]+(?:\.py)?", text)
    assert named or "Tests: every test" in text
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_make_target_is_in_the_guide_for_contributors() -> None:
    targets = re.findall(r"^([a-z]+):.*## ", text_of("Makefile"), flags=re.MULTILINE)
    assert targets
    guide = text_of("CONTRIBUTING.md")
    assert [target for target in targets if target != "help" and f"make {target}" not in guide] == []


def test_the_layers_are_those_that_the_imports_keep() -> None:
    table = text_of("ARCHITECTURE.md").split("## Layers\n", 1)[1].split("\n## ", 1)[0]
    described = [tuple(re.findall(r"`(\w+)`", packages)) for _, packages, _ in table_rows(table)]
    # What is left out has no package of its own: the entry points, and the reader of YAML that the policy file has below it.
    assert described == [names for names in LAYERS if not {"__init__", "__main__", "yaml_positions", "yaml_reader"} & set(names)]


# -- the changelog -----------------------------------------------------------------------------------------------------------------


def test_the_changelog_begins_with_this_version() -> None:
    versions = re.findall(r"^## \[?([^\]\s]+)\]?(?: - (\d{4}-\d{2}-\d{2}))?$", text_of("CHANGELOG.md"), flags=re.MULTILINE)
    assert versions[0][0] == __version__
    assert all(day for _, day in versions)


def test_the_changelog_names_every_key_that_was_renamed() -> None:
    text = text_of("CHANGELOG.md")
    words = set(re.findall(r"`([^`]+)`", text))
    scenario_keys = [pair for table, keys in RETIRED_KEYS.items() for pair in keys.items() if pair[1] in KEY_TABLES[table]]
    policy_keys = [pair for names in (PLUGINS, SETTINGS, *OPTIONS.values()) for pair in names.items()]
    assert [pair for pair in (*scenario_keys, *policy_keys) if not set(pair) <= words] == []


def test_the_changelog_names_every_metric_that_was_renamed_as_it_is_now() -> None:
    table = text_of("CHANGELOG.md").split("metrics\n", 1)[1].split("\n### ", 1)[0]
    now = {name for *_, cell in table_rows(table) for name in re.findall(r"`(muster_\w+)", cell)}
    assert now
    assert now <= {metric.name for metric in METRICS}


# -- examples and messages ---------------------------------------------------------------------------------------------------------


POLICY_EXAMPLES = [
    (name, block)
    for name in ("docs/preempt.md", "docs/job-preempt.md", "docs/from-koordinator.md")
    for block in re.findall(r"```yaml\n(.*?)```", text_of(name), flags=re.DOTALL)
]


@pytest.mark.parametrize(("name", "block"), POLICY_EXAMPLES, ids=[name for name, _ in POLICY_EXAMPLES])
def test_every_example_of_a_policy_can_be_loaded(name: str, block: str) -> None:
    load_policy(textwrap.dedent(block), file=name)


def documented_policies() -> Iterator[tuple[str, list[object]]]:
    """The plugins of every policy, alone or of a scenario, in the manual and the examples; none where it changes the default."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    blocks = [(page, block) for page in pages for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), flags=re.DOTALL)]
    blocks += [(path, path.read_text()) for path in sorted((ROOT / "examples").glob("*.yaml"))]
    for path, block in blocks:
        for document in yaml.safe_load_all(textwrap.dedent(block)):
            policy = document.get("policy", document) if isinstance(document, dict) else {}
            if isinstance(policy, dict) and "plugins" in policy:
                yield path.name, [] if "base" in policy else policy["plugins"]


@pytest.mark.parametrize(("name", "plugins"), list(documented_policies()))
def test_a_policy_that_is_shown_leaves_no_filter_out(name: str, plugins: list[object]) -> None:
    named = {plugin if isinstance(plugin, str) else next(iter(plugin)) for plugin in plugins if isinstance(plugin, str | dict)}
    assert not plugins or set(UNCHECKED) - named == set(), name


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))


@cache
def messages_in_source() -> list[set[str]]:
    """The words of every text in the source; what is filled in is not among them."""
    nodes = [node for path in SOURCE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    comments = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    parts = [node.values if isinstance(node, ast.JoinedStr) else [node] for node in nodes if id(node) not in comments]
    return [
        words_of(" ".join(part.value for part in some if isinstance(part, ast.Constant) and isinstance(part.value, str)))
        for some in parts
    ]


@pytest.mark.parametrize(("name", "heading"), [("docs/eviction.md", "Messages"), ("docs/preempt.md", "Why no pod was evicted")])
def test_every_message_that_a_page_explains_is_one_that_muster_writes(name: str, heading: str) -> None:
    section = text_of(name).split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    quoted = re.findall(r"^(?:- |\| )((?:`[^`]+`(?:, )?)+)", section, flags=re.MULTILINE)
    parts = [part for line in quoted for message in re.findall(r"`([^`]+)`", line) for part in re.split(r"[;:] ", message)]
    known = [words for words in messages_in_source() if len(words) > 1]
    assert parts
    for words in [words_of(part) for part in parts]:
        # At most half of a message may be names and numbers that it was given.
        assert len(words) < 3 or any(2 * len(words & some) >= len(words) for some in known), words
