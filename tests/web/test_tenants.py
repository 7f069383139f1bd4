"""Readers on other machines: a token of the cluster, and no more than its owner may see of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.web.served import ask, scenario, serving

from muster.cli.view import read_views
from muster.web.api_access import CACHE_S, Denied, TokenAccess
from muster.web.visibility import visible_answer, visible_entries

MAY_LIST = {"operator": {""}, "researcher": {"research"}, "guest": set[str]()}


class FakeReviews:
    """An API server that knows a token by the name of its user."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, path: str, manifest: dict[str, Any]) -> bytes:
        self.asked.append(path.rpartition("/")[2])
        spec = manifest["spec"]
        if manifest["kind"] == "TokenReview":
            known = spec["token"] in MAY_LIST
            status: dict[str, Any] = {"authenticated": known, **({"user": {"username": spec["token"]}} if known else {})}
        else:
            status = {"allowed": spec["resourceAttributes"]["namespace"] in MAY_LIST[spec["user"]]}
        return msgspec.json.encode({**manifest, "status": status})


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(read_views(scenario(tmp_path_factory.mktemp("tenants"))), TokenAccess(FakeReviews())) as address:
        yield address


def get(page: str, path: str, user: str) -> Any:
    return ask(f"{page}/api/v1/{path}", headers={"Authorization": f"Bearer {user}"})


def test_without_a_token_that_the_cluster_knows_there_is_no_answer(page: str) -> None:
    assert ask(f"{page}/api/v1/summary")[0] == 401
    assert get(page, "summary", "stranger")[0] == 401
    assert ask(f"{page}/api/v1/summary", headers={"Authorization": "Basic operator"})[0] == 401


def test_whoever_may_list_all_pods_sees_everything(page: str) -> None:
    assert {row["gang"] for row in get(page, "gangs", "operator")[1]["gangs"]} == {
        *("prod/train", "prod/xl", "research/huge", "research/llm"),
    }


@pytest.mark.parametrize("path", ["cluster", "gangs/research/llm", "why/research/huge"])
def test_a_tenant_sees_no_name_of_another(page: str, path: str) -> None:
    status, document = get(page, path, "researcher")
    text = json.dumps(document)
    assert status == 200
    assert "research/" in text
    # The reason on her own gang is what stands on her PodGroup, too.
    assert "prod/" not in text
    assert "queue/prod" not in text


def test_a_tenant_sees_the_figures_of_all_queues_and_her_own_by_name(page: str) -> None:
    rows = get(page, "queues", "researcher")[1]["queues"]
    assert {"root", "queue/research"} < {row["queue"] for row in rows}
    all_rows = get(page, "queues", "operator")[1]["queues"]
    assert [row["used"] for row in rows] == [row["used"] for row in all_rows]


def test_gangs_of_others_do_not_exist_for_her(page: str) -> None:
    for path in ("gangs/prod/xl", "why/prod/xl"):
        status, document = get(page, path, "researcher")
        assert (status, document["error"]) == (404, "there is no gang prod/xl in the cluster")
    assert get(page, "gangs", "guest")[1]["gangs"] == []


def test_she_may_plan_in_her_own_namespaces_only(page: str) -> None:
    for namespace, wanted in (("research", 200), ("prod", 403)):
        job = f"{{name: new, namespace: {namespace}, queue: {namespace}, pods: 1, requests: {{gpu: 8}}}}".encode()
        status, document = ask(f"{page}/api/v1/plan", body=job, headers={"Authorization": "Bearer researcher"})
        assert status == wanted
        assert "prod/" not in json.dumps(document)


def test_an_answer_names_no_gang_of_others() -> None:
    row = {"gang": "prod/xl", "queue": "queue/prod", "pods": ["prod/xl-0"], "gpuHours": 3.0, "budgets": ["prod/b"]}
    answer = {
        "forecast": {"evictedGangs": [row], "alternatives": [{"evicts": ["prod/xl (2 pods)"], "why": "takes prod/xl"}]},
        "ahead": [{"gang": "prod/xl", "queue": "queue/prod", "nodes": ["n1"], "age": 3}],
        "budgets": ["prod/b", "research/b"],
    }
    shown = visible_answer(answer, frozenset({"research"}))
    assert "prod" not in json.dumps(shown)
    assert shown["forecast"]["evictedGangs"][0]["gpuHours"] == 3.0
    assert shown["budgets"] == ["research/b"]


def test_a_change_with_which_it_runs_names_no_budget_of_others() -> None:
    own, others = (
        "disruption budget research/serve allowed it",
        "the limit of queue q were gpu 4 and disruption budget prod/serve allowed it",
    )
    remedies = [{"what": text, "evicts": 1, "command": ""} for text in ("its minimum were 2", own, others)]
    shown = visible_answer({"forecast": {"remedies": remedies}}, frozenset({"research"}))
    assert shown["forecast"]["remedies"] == remedies[:2]


def test_a_history_names_no_gang_of_others() -> None:
    entries = [
        {"time": 1.0, "event": "evict", "for_gang": "prod/xl", "victims": ["research/a-0"], "why": "for prod/xl", "pods": 1},
        {"time": 2.0, "event": "evicts", "for_gang": "research/b", "victim": "research/a", "why": "priority", "pods": 1},
        {"time": 3.0, "event": "bind", "why": "it fits", "pods": 2},
    ]
    first, *rest = visible_entries(entries, frozenset({"research"}))
    assert first == {"time": 1.0, "event": "evict", "pods": 1}
    assert rest == entries[1:]
    assert visible_entries(entries, None) == entries


def test_the_api_server_is_asked_once_and_again_when_its_answer_is_old() -> None:
    now, reviews = [0.0], FakeReviews()

    async def namespaces() -> list[str]:
        return ["prod", "research", "research"]

    async def steps() -> None:
        access = TokenAccess(reviews, clock=lambda: now[0])
        for at, asked in ((0.0, 4), (CACHE_S - 1, 6), (CACHE_S + 1, 8)):
            now[0] = at
            reader = await access.reader(remote="10.0.0.7", host="", token="researcher")
            assert await reader.visible(namespaces) == frozenset({"research"})
            # Refusals are asked about again sooner.
            assert len(reviews.asked) == asked
        with pytest.raises(Denied):
            await access.reader(remote="10.0.0.7", host="", token="")

    asyncio.run(steps())
