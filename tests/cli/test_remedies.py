"""With which changes a gang runs that cannot: each is found, and holds when it is really made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.commands import muster

NODES: list[dict[str, Any]] = [{"name": "n[1-4]", "gpu": 8}]
JOB: dict[str, Any] = {"name": "train", "queue": "research", "pods": 4, "requests": {"gpu": 8}}
TIERS = {"plugins": [{"topology": {"tiers": {"rack": "rack", "block": "block"}}}], "base": "default"}


def cluster(**keys: object) -> dict[str, Any]:
    return {"name": "a cluster", "nodes": NODES, "queues": [{"name": "research"}], **keys}


def running(name: str, nodes: str, pods: int, **keys: object) -> dict[str, Any]:
    return {"name": name, "queue": "research", "pods": pods, "requests": {"gpu": 8}, "runningOn": nodes, "age": "1h", **keys}


def asked(tmp_path: Path, given: dict[str, Any], job: dict[str, Any], *arguments: str) -> Any:
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(given, sort_keys=False))
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    result = muster("plan", "job.yaml", "-c", "cluster.yaml", "--json", *arguments, cwd=tmp_path)
    assert result.code in (0, 2, 3), result.err
    return result.document


LIMITED = cluster(queues=[{"name": "research", "limit": {"gpu": 24}}])
BUSY = cluster(gangs=[running("sweep", "n[1-2]", 2)])
CLASSES = cluster(priorityClasses=[{"name": "high", "value": 100}], gangs=[running("sweep", "n[1-4]", 4)])
RACKS = cluster(
    policy=TIERS,
    nodes=[{"name": f"r{rack}n[1-2]", "gpu": 8, "labels": {"rack": f"r{rack}", "block": "b1"}} for rack in (1, 2)],
)
GUARDED = cluster(
    objects=[
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "sweep"},
            "spec": {"minAvailable": 4, "selector": {}},
        }
    ],
    gangs=[running("sweep", "n[1-4]", 4, priority=1)],
)

BORROWED = cluster(
    queues=[{"name": "research", "deserved": {"gpu": 16}}, {"name": "other", "deserved": {"gpu": 8}}],
    gangs=[running("sweep", "n[1-4]", 4, min=1) | {"queue": "other"}],
)

CASES: list[tuple[dict[str, Any], dict[str, Any], str, dict[str, Any], dict[str, Any]]] = [
    (LIMITED, JOB, "its minimum were 3", LIMITED, JOB | {"min": 3}),
    (LIMITED, JOB, "each member asked for at most 6 gpu", LIMITED, JOB | {"requests": {"gpu": 6}}),
    (LIMITED, JOB, "the limit of queue research were gpu 32", cluster(queues=[{"name": "research", "limit": {"gpu": 32}}]), JOB),
    (BUSY, JOB, "there were 2 more nodes like n1", BUSY | {"nodes": [{"name": "n[1-6]", "gpu": 8}]}, JOB),
    (CLASSES, JOB, "its priority class were high, after evicting 4 pods", CLASSES, JOB | {"priorityClassName": "high"}),
    (
        GUARDED,
        JOB | {"priority": 100},
        "disruption budget default/sweep allowed it, after evicting 4 pods",
        GUARDED | {"objects": []},
        JOB | {"priority": 100},
    ),
    (
        BORROWED,
        JOB | {"pods": 3},
        "the deserved share of queue research were gpu 24, after evicting 3 pods",
        BORROWED | {"queues": [{"name": "research", "deserved": {"gpu": 24}}, {"name": "other", "deserved": {"gpu": 8}}]},
        JOB | {"pods": 3},
    ),
    (
        RACKS,
        JOB | {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}},
        "tier 2 were allowed",
        RACKS,
        JOB | {"networkTopology": {"mode": "hard", "highestTierAllowed": 2}},
    ),
]


@pytest.mark.parametrize(("given", "job", "text", "then", "other_job"), CASES, ids=[case[2] for case in CASES])
def test_a_change_that_is_named_makes_it_run(
    tmp_path: Path, given: dict[str, Any], job: dict[str, Any], text: str, then: dict[str, Any], other_job: dict[str, Any]
) -> None:
    document = asked(tmp_path, given, job)
    assert document["code"] == 3
    found = {_text(each) for each in document["gangs"][0]["remedies"]}
    assert text in found, found
    assert asked(tmp_path, then, other_job)["code"] in (0, 2)


def _text(remedy: dict[str, Any]) -> str:
    return f"{remedy['what']}, after evicting {remedy['evicts']} pods" if remedy["evicts"] else str(remedy["what"])


def test_the_smallest_change_of_each_kind_is_named(tmp_path: Path) -> None:
    document = asked(tmp_path, LIMITED, JOB | {"min": 4})
    minimum = next(each for each in document["gangs"][0]["remedies"] if each["what"].startswith("its minimum"))
    assert minimum == {"what": "its minimum were 3", "evicts": 0, "command": "--min 3"}
    assert asked(tmp_path, LIMITED, JOB | {"min": 4}, "--min", "3")["code"] == 0
    assert asked(tmp_path, LIMITED, JOB | {"requests": {"gpu": 7}})["code"] == 3


def test_a_limit_and_what_else_bars_it_are_named_together(tmp_path: Path) -> None:
    given = cluster(queues=[{"name": "research", "limit": {"gpu": 16}}], gangs=[running("sweep", "n[1-2]", 2)])
    document = asked(tmp_path, given, JOB)
    texts = [_text(each) for each in document["gangs"][0]["remedies"]]
    assert "the limit of queue research were gpu 48 and there were 2 more nodes like n1" in texts


def test_the_answer_is_the_same_however_often_it_is_asked_and_is_bounded_in_time(tmp_path: Path) -> None:
    assert asked(tmp_path, LIMITED, JOB) == asked(tmp_path, LIMITED, JOB)
    [gang] = asked(tmp_path, LIMITED, JOB, "--seconds", "0")["gangs"]
    assert (gang["remedies"], gang["remediesCutShort"]) == ([], True)
    result = muster("plan", "job.yaml", "-c", "cluster.yaml", "--seconds", "0", cwd=tmp_path)
    assert " runs if  (not all changes were tried: the time for this was over, --seconds 0)" in result.out
    result = muster("plan", "job.yaml", "-c", "cluster.yaml", cwd=tmp_path)
    assert " runs if  its minimum were 3: --min 3" in result.out


def test_answers_fit_a_screen_of_eighty_columns_and_commands_can_be_copied(tmp_path: Path) -> None:
    asked(tmp_path, LIMITED, JOB)
    plain = muster("plan", "job.yaml", "-c", "cluster.yaml", cwd=tmp_path).out
    narrow = muster("plan", "job.yaml", "-c", "cluster.yaml", cwd=tmp_path, COLUMNS="80").out
    assert max(map(len, plain.splitlines())) > 80 >= max(map(len, narrow.splitlines()))
    assert narrow.replace(" \\\n", "\n").split() == plain.split()
    [begin] = [at for at, line in enumerate(narrow.splitlines()) if "were gpu 32: kubectl" in line]
    assert narrow.splitlines()[begin].endswith(" \\")
    assert narrow.splitlines()[begin + 1].startswith(" " * 10)


PIECES = cluster(
    gangs=[
        running(
            f"piece{number}",
            f"n{number}",
            1,
            requests={"gpu": 4},
            controller="recreate",
            annotations={"muster.dev/movable": "true"},
        )
        for number in range(1, 5)
    ]
)


def test_that_moving_pods_would_do_is_said_where_the_action_is_off_and_is_done_where_it_is_on(tmp_path: Path) -> None:
    job = {**JOB, "pods": 2}
    found = [_text(remedy) for remedy in asked(tmp_path, PIECES, job)["gangs"][0]["remedies"]]
    assert found[0] == "the policy has the action consolidate: 2 pods of 2 gangs are moved, and nobody ends"
    on = asked(tmp_path, {**PIECES, "policy": {"actions": ["expire", "enqueue", "allocate", "consolidate"]}}, job)
    assert on["code"] == 2
    assert sorted(each["movedTo"][0] for each in on["gangs"][0]["evictedGangs"]) == ["n3", "n4"]
    text = muster("plan", "job.yaml", "-c", "cluster.yaml", cwd=tmp_path).out
    assert "default/train can run after moving 2 pods of 2 gangs; nobody ends." in text


def test_nodes_of_one_kind_in_several_racks_are_one_change(tmp_path: Path) -> None:
    given = RACKS | {"gangs": [running("sweep", "r1n1", 1)]}
    document = asked(tmp_path, given, JOB)
    more = [each["what"] for each in document["gangs"][0]["remedies"] if "more node" in each["what"]]
    assert more == ["there were one more node like r1n1"]
