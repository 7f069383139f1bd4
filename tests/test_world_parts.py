"""The world has three parts, and each has its writers: kept by reading the source.

Facts are written by the store alone, placements by `move` alone, memory at the places listed here (every write is journaled, so a
trial undoes it). Topics are bumped where something is written, inside state, and nobody depends on a topic that nobody bumps.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from muster.model.topics import FOLLOWED, Topic
from muster.state.facts import Facts
from muster.state.journaled_dict import JournaledDict
from muster.state.memory import Memory
from muster.state.world import World

SOURCE = Path(__file__).parent.parent / "src" / "muster"

CHANGES_IN_PLACE = {"append", "extend", "insert", "pop", "popitem", "setdefault", "update", "clear", "put", "drop", "set", "add"}

FOLDING = ("state/pod_facts.py", "state/object_facts.py")
FACTS = {name: {"state/store.py", *FOLDING, "state/gangs/membership.py", "state/empty_world.py"} for name in Facts.__slots__}

PLACEMENTS = {
    **{name: {"state/placements.py"} for name in ("by_uid", "on_node", "reservations", "reserved", "releasing")},
    "unplaced_members": {"state/placements.py", "state/gangs/membership.py"},
    "journal": {"state/placements.py", "state/trial.py"},
}

MEMORY = {
    "cycle": {"engine/cycle.py"},
    "decided_at": {"engine/cycle.py"},
    "attempt_debts": {"state/memory.py"},
    "attempts": {"state/memory.py", "state/gangs/membership.py"},
    "plans": {
        "state/pod_facts.py",
        "engine/expire.py",
        "engine/nominations.py",
        "engine/recover.py",
        "engine/evict/evict_actions.py",
        "engine/consolidate/consolidate.py",
        "engine/consolidate/moved_pods.py",
        "state/gangs/broken_gangs.py",
    },
    "last_minimums": {"state/store.py", "state/memory.py"},
    "nominated_since": {"engine/permit_wait.py"},
    "binding_reservations": {"state/pod_facts.py", "state/memory.py", "engine/cycle.py"},
    "refused_binds": {"state/pod_facts.py", "state/memory.py"},
    "unwritten_reservations": {"state/pod_facts.py", "state/memory.py", "engine/lost_reservations.py"},
    "bound_by_others": {"state/pod_facts.py", "state/memory.py", "engine/recover.py"},
    "timed_out": {"state/pod_facts.py", "state/memory.py", "engine/expire.py"},
    "refused_evictions": {"state/pod_facts.py", "state/memory.py"},
    "cancelled_evictions": {"state/memory.py", "engine/nominations.py", "engine/saved_history.py"},
    "below_min_since": {"state/memory.py", "state/gangs/broken_gangs.py", "engine/saved_history.py"},
    "noted_placements": {"state/gangs/broken_gangs.py"},
    "noted_gangs": {"state/gangs/broken_gangs.py"},
    "losses": {"state/memory.py", "engine/evict/eviction_history.py", "engine/saved_history.py"},
    "plan_losses": {"state/memory.py"},
    "backfill_reservations": {"state/memory.py"},
    "backfill_searches": {"state/memory.py", "engine/backfill_reservations.py"},
    "moves": {
        "state/memory.py",
        "engine/consolidate/consolidate.py",
        "engine/consolidate/moved_pods.py",
        "engine/evict/evict_actions.py",
    },
    "past_use": {"engine/past_use.py", "engine/saved_history.py"},
    "noted_use": {"engine/past_use.py"},
    "saved_plans": {"state/memory.py", "state/object_facts.py", "engine/saved_plans.py", "engine/recover.py"},
    "saved_histories": {"state/memory.py", "engine/saved_history.py"},
    "histories_saved_at": {"engine/saved_history.py"},
    "history_saved_to": {"state/memory.py", "engine/saved_history.py"},
    "faulty_nodes": {"engine/validity_conditions.py"},
    "reported": {"state/memory.py", "engine/reporting.py", "engine/commit.py"},
    "reported_placements": {"engine/reporting.py"},
    "reported_gangs": {"engine/reporting.py"},
    "reported_queues": {"engine/queue_status.py"},
}

PARTS = {"facts": FACTS, "placements": PLACEMENTS, "memory": MEMORY}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def written(tree: ast.AST) -> Iterator[ast.expr]:
    """Every expression whose value the code replaces or changes in place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from target.elts if isinstance(target, ast.Tuple) else [target]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            yield node.target
        elif isinstance(node, ast.Delete):
            yield from node.targets
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES_IN_PLACE:
            yield node.func.value


def written_fields(tree: ast.AST, part: str) -> Iterator[tuple[str, int]]:
    """Fields of one part of the world that the code writes: `x.facts.nodes[...] = ...`, `memory.plans.set(...)`."""
    aliases = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and node.value.attr == part
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for target in written(tree):
        while isinstance(target, ast.Subscript | ast.Call):
            target = target.value if isinstance(target, ast.Subscript) else target.func
        if isinstance(target, ast.Attribute):
            of = target.value
            owner = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
            if owner == part or (isinstance(of, ast.Name) and of.id in aliases):
                yield target.attr, target.lineno


@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_the_world_is_written_by_its_writers_alone(part: str) -> None:
    found = writes_in_the_wrong_place()[part]
    assert not found, "\n".join(found)


@cache
def writes_in_the_wrong_place() -> dict[str, list[str]]:
    """By part. Every module is parsed once for all of them."""
    found: dict[str, list[str]] = {part: [] for part in PARTS}
    for file, tree in sources():
        for part, writers in PARTS.items():
            found[part].extend(
                f"{file}:{line} writes {part}.{field}"
                for field, line in written_fields(tree, part)
                if field in writers and file not in writers[field]
            )
    return found


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ("facts", "s.world.facts.nodes[name] = node"),
        ("facts", "facts = world.facts\nfacts.pods.pop(uid, None)"),
        ("facts", "world.facts.gangs_in_queue.setdefault(queue, {})[key] = None"),
        ("placements", "del world.placements.by_uid[uid]"),
        ("placements", "world.placements.journal[3:] = []"),
        ("memory", "memory = s.world.memory\nmemory.plans.set(name, plan)"),
        ("memory", "s.world.memory.cycle += 1"),
    ],
)
def test_a_write_in_the_wrong_place_is_noticed(part: str, code: str) -> None:
    assert [field for field, _ in written_fields(ast.parse(code), part) if field in PARTS[part]]


def test_no_field_of_memory_is_left_out() -> None:
    fields = {name for name in vars(World().memory) if not name.startswith("_")}
    assert fields == MEMORY.keys()
    plain = {
        name for name, value in vars(World().memory).items() if not name.startswith("_") and not isinstance(value, JournaledDict)
    }
    logs = {"reported_placements", "reported_gangs", "reported_queues", "noted_placements", "noted_gangs", "noted_use"}
    assert plain == {"cycle", "decided_at", "history_saved_to", *logs}, (
        "what is not journaled is not undone by a trial: only what is written outside of trials may be plain"
    )
    assert isinstance(World().memory, Memory)


# -- topics ------------------------------------------------------------------------------------------------------------------------

LOGS = {"rows": Topic.NODE_ROWS, "placements": Topic.PLACEMENTS, "ledger": Topic.LEDGER, "gangs": Topic.GANGS}


def topic_of(node: ast.AST) -> Topic | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Topic":
        return Topic.__members__.get(node.attr)
    return None


def bumped(file: str, tree: ast.Module) -> Iterator[Topic]:
    """Topics that a module bumps: by name, by a table of topics in the same module, or through a log."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    by_variable = False
    for call in calls:
        assert isinstance(call.func, ast.Attribute)
        if call.func.attr in ("bump", "capacity_freed"):
            named = [topic for argument in call.args for node in ast.walk(argument) if (topic := topic_of(node)) is not None]
            yield from named
            by_variable = by_variable or (call.func.attr == "bump" and not named)
        if call.func.attr in ("add", "extend", "drop") and isinstance(call.func.value, ast.Attribute):
            log, owner = call.func.value.attr, ast.unparse(call.func.value.value)
            if log in LOGS and owner.endswith("changes"):
                yield LOGS[log]
            elif log == "_log" and file == "state/ledger.py":
                yield Topic.LEDGER
    for node in ast.walk(tree) if by_variable or any(map(names_bump, ast.walk(tree))) else ():
        # A module that bumps what a variable says: every topic that it names in a table, a loop or a call.
        if (topic := topic_of(node)) is not None and topic not in FOLLOWED:
            yield topic


def names_bump(node: ast.AST) -> bool:
    """`bump = changes.bump`, alone or among others."""
    if not isinstance(node, ast.Assign):
        return False
    values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    return any(isinstance(value, ast.Attribute) and value.attr == "bump" for value in values)


def named_by_verdicts(tree: ast.Module) -> Iterator[Topic]:
    """`Topic.X.any` and `Topic.X.of(key)` are how a verdict names a topic."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("any", "of") and (topic := topic_of(node.value)) is not None:
            yield topic


def depended_on(tree: ast.Module) -> Iterator[Topic]:
    """Topics of derived values and of stamps: all that are mentioned and neither bumped nor named by a verdict."""
    named = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in ("any", "of")}
    for node in ast.walk(tree):
        if (topic := topic_of(node)) is not None and id(node) not in named:
            yield topic


def by_topic(find: str) -> dict[Topic, set[str]]:
    return mentions_of_topics()[find]


@cache
def mentions_of_topics() -> dict[str, dict[Topic, set[str]]]:
    """The modules that bump, name or depend on each topic. Every module is parsed once for all of them."""
    found: dict[str, dict[Topic, set[str]]] = {find: {topic: set() for topic in Topic} for find in ("bumped", "named", "depended")}
    for file, tree in sources():
        if file == "model/topics.py":
            continue
        for find, topics in (("bumped", bumped(file, tree)), ("named", named_by_verdicts(tree)), ("depended", depended_on(tree))):
            for topic in topics:
                found[find][topic].add(file)
    return found


def test_every_topic_that_a_verdict_names_is_settled_and_has_somebody_who_bumps_it() -> None:
    bumpers, named = by_topic("bumped"), by_topic("named")
    assert any(named.values())
    for topic, files in named.items():
        assert not files or topic not in FOLLOWED, f"{topic} counts undone trials too: {sorted(files)} must not name it"
        assert not files or bumpers[topic], f"{sorted(files)} wait for {topic}, which nobody bumps"


def test_every_topic_has_somebody_who_bumps_it_and_somebody_who_needs_it() -> None:
    bumpers, named, depended = by_topic("bumped"), by_topic("named"), by_topic("depended")
    logs_read = {Topic.NODE_ROWS, Topic.PLACEMENTS, Topic.LEDGER, Topic.GANGS}
    for topic in Topic:
        assert bumpers[topic], f"nobody bumps {topic}"
        readers = named[topic] | (depended[topic] - bumpers[topic]) | (depended[topic] & {"state/node_table.py"})
        assert readers or topic in logs_read, f"nobody needs {topic}"


def test_topics_are_bumped_inside_state_alone() -> None:
    outside = [
        f"{file} bumps {topic}" for topic, files in by_topic("bumped").items() for file in files if not file.startswith("state/")
    ]
    # Expire says which capacity became free; the placements bump it.
    assert outside == ["engine/expire.py bumps Topic.FREE_CAPACITY"]


def test_who_bumps_a_topic_and_who_names_it() -> None:
    """The whole list, so that a change of it is seen: who bumps each settled topic, and whose verdicts name it."""
    bumpers, named = by_topic("bumped"), by_topic("named")
    listed = {topic: (sorted(bumpers[topic]), sorted(named[topic])) for topic in Topic if named[topic]}
    assert listed == WAITED_FOR


PLANNERS = ("engine/consolidate/consolidate.py", "engine/evict/evict_actions.py")

WAITED_FOR: dict[Topic, tuple[list[str], list[str]]] = {
    Topic.FREE_CAPACITY: (
        ["engine/expire.py", "state/memory.py", "state/object_facts.py", "state/placements.py", "state/pod_facts.py"],
        [
            "engine/explain.py",
            "engine/kept_capacity.py",
            "plugins/_domain_search.py",
            "plugins/_real_capability.py",
            "plugins/_tier_constraint.py",
            "plugins/elastic_quota.py",
            "plugins/overcommit.py",
            "plugins/proportion.py",
        ],
    ),
    Topic.RELEASING: (["state/placements.py", "state/pod_facts.py"], ["engine/explain.py"]),
    Topic.RESERVATIONS: (["state/placements.py"], ["engine/explain.py"]),
    Topic.POD_PLACED: (["state/placements.py", "state/pod_facts.py"], ["engine/explain.py"]),
    Topic.EVICTABLE: (
        ["state/gangs/broken_gangs.py", "state/gangs/membership.py", "state/memory.py", "state/pod_facts.py"],
        [*PLANNERS],
    ),
    Topic.QUEUES: (["state/object_facts.py"], ["engine/evict/evict_actions.py", "engine/quota.py", "plugins/capacity.py"]),
    Topic.QUEUE_CAPACITY: (["state/object_facts.py", "state/placements.py"], ["engine/evict/evict_actions.py", "engine/quota.py"]),
    Topic.QUEUE_USAGE: (
        ["state/placements.py", "state/pod_facts.py"],
        [*PLANNERS],
    ),
    Topic.DEMAND: (
        ["state/gangs/membership.py", "state/object_facts.py"],
        ["engine/evict/evict_actions.py", "plugins/elastic_quota.py", "plugins/overcommit.py", "plugins/proportion.py"],
    ),
    Topic.BUDGETS: (
        ["state/object_facts.py"],
        [*PLANNERS, "plugins/pdb.py"],
    ),
}
