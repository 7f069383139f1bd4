"""Readers on other machines: a token of the cluster, and no more than its owner may see of it."""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.web.served import ask, scenario, serving

from muster.cli.view import read_views
from muster.web.api_access import CACHE_S, Denied, TokenAccess
from muster.web.api_server import static_text
from muster.web.cluster_view import ClusterView
from muster.web.recorded_views import RecordedViews
from muster.web.visibility import hidden_names, visible_answer, visible_entries

OPEN_API = json.loads(static_text("openapi.json"))
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
    shown = visible_answer(answer, frozenset({"research"}), str)
    assert "prod" not in json.dumps(shown)
    assert shown["forecast"]["evictedGangs"][0]["gpuHours"] == 3.0
    assert shown["budgets"] == ["research/b"]


def test_a_change_with_which_it_runs_names_no_budget_of_others() -> None:
    own, others = (
        "disruption budget research/serve allowed it",
        "the limit of queue q were gpu 4 and disruption budget prod/serve allowed it",
    )
    remedies = [{"what": text, "evicts": 1, "command": ""} for text in ("its minimum were 2", own, others)]
    shown = visible_answer({"forecast": {"remedies": remedies}}, frozenset({"research"}), str)
    assert shown["forecast"]["remedies"] == remedies[:2]


def test_a_sentence_names_no_gang_and_no_queue_of_others(tmp_path: Path) -> None:
    view = asyncio.run(read_views(scenario(tmp_path)).view())
    hide = hidden_names(view, frozenset({"research"}))
    said = "with what is kept for prod/xl (10 min) and research/llm, queue prod: gpu 24/24; "
    said += "3/4 members placed; pod prod/xl-0 has priority"
    hidden = hide(said)
    assert "prod" not in hidden
    for kept in ("research/llm", "gpu 24/24", "3/4 members placed", "another tenant's"):
        assert kept in hidden
    assert hide("queue research: gpu 8/8") == "queue research: gpu 8/8"
    assert hide("queue 'prd' is unknown; did you mean 'prod'?") == "queue 'prd' is unknown"
    assert hide("there is no queue 'x'; known: default, prod") == "there is no queue 'x'"
    assert hidden_names(view, None)(said) == said


ZEBRA = """
name: one tenant beside another, whose names are all the same word
policy:
  plugins: [capacity, priority, topology: {tiers: {rack: rack}}, fit, nominated, lost-work]
  settings: {reserveAfterSeconds: 60}
nodes: [{name: "n[1-4]", gpu: 8, labels: {rack: r1}}]
queues: [{name: zebra, deserved: {gpu: 24}}, {name: research, deserved: {gpu: 8}, limit: {gpu: 24}}]
gangs:
- {name: llm, namespace: research, queue: research, pods: 2, requests: {gpu: 8}, priority: 5, age: 2h, runningOn: [n1, n2]}
- {name: zebra-a, namespace: zebra, queue: zebra, priority: 100, pods: 1, requests: {gpu: 8}, age: 1h, runningOn: [n3]}
steps:
- submit: {name: huge, namespace: research, queue: research, pods: 3, requests: {gpu: 8}}
- run: {for: 2m, every: 30s}
- submit: {name: zebra-b, namespace: zebra, queue: zebra, priority: 50, pods: 2, requests: {gpu: 8}}
- run: {for: 2m, every: 30s}
- submit: {name: zebra-c, namespace: zebra, queue: zebra, priority: 50, pods: 4, requests: {gpu: 8}}
- submit: {name: late, namespace: research, queue: research, priority: 1, pods: 1, requests: {gpu: 4}}
- run: {for: 4m, every: 30s}
- delete: PodGroup/zebra/zebra-b
- run: {for: 1m, every: 30s}
"""


def test_no_answer_of_any_path_has_a_name_of_another(tmp_path: Path) -> None:
    paths = [path.removeprefix("/api/v1/") for path, methods in OPEN_API["paths"].items() if "get" in methods]
    gangs = ("llm", "huge", "late", "none")
    asked = [
        each for path in paths if "{" not in path and path not in ("events", "openapi.json") for each in (path, f"{path}?at=0")
    ]
    asked += [path.format(namespace="research", name=name) for path in paths if "{" in path for name in gangs]
    asked += [f"why/research/{name}?outlook=true" for name in gangs]
    with serving(read_views(scenario(tmp_path, ZEBRA)), TokenAccess(FakeReviews())) as page:
        whole = json.dumps(get(page, "cluster", "operator")[1])
        assert all(name in whole for name in ("zebra/zebra-c", "queue/zebra", "for zebra/zebra-b"))
        for user in ("researcher", "guest"):
            for path in asked:
                assert "zebra" not in json.dumps(get(page, path, user)[1]), path
        for wanted in (1, 8):
            job = b"{name: new, namespace: research, queue: research, pods: %d, requests: {gpu: 8}, priority: 7}" % wanted
            status, document = ask(f"{page}/api/v1/plan?outlook=true", body=job, headers={"Authorization": "Bearer researcher"})
            assert (status, document["gangs"][0]["gang"]) == (200, "research/new")
            assert "zebra" not in json.dumps(document)


def test_a_sentence_of_the_past_names_nobody_who_is_gone(tmp_path: Path) -> None:
    """No gang of that namespace is in the cluster any more; hers, domains, ports and counts stay as they are."""
    view = asyncio.run(read_views(scenario(tmp_path)).view())
    hide = hidden_names(replace(view, domains=[{**view.domains[0], "domain": "1:z0/r1"}]), frozenset({"research"}))
    assert hide("with what is kept for zebra/xl (10 min)") == "with what is kept for another tenant's (10 min)"
    for kept in ("rack z0/r1 has 3/4", "port 8080/TCP", "nvidia.com/gpu 8", "queue/research: gpu 8", "research/gone has priority"):
        assert hide(kept) == kept


def test_members_in_namespaces_of_others_are_not_shown(tmp_path: Path) -> None:
    """Roles of one gang may lie in several namespaces."""
    views = read_views(scenario(tmp_path))

    class WithMembers(_CountingViews):
        async def view(self, at: float | None = None) -> ClusterView:
            rows = [{"pod": f"{where}/llm-0", "role": "llm", "node": "a1", "phase": "bound"} for where in ("prod", "research")]
            return replace(await super().view(at), members=lambda _: rows)

    with serving(WithMembers(views), TokenAccess(FakeReviews())) as page:
        for user, shown in (("operator", ["prod/llm-0", "research/llm-0"]), ("researcher", ["research/llm-0"])):
            assert [row["pod"] for row in get(page, "gangs/research/llm", user)[1]["members"]] == shown


def test_her_own_namespace_is_named_even_before_anything_is_in_it(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MAY_LIST, "newcomer", {"fresh"})
    asking = {"Authorization": "Bearer newcomer"}
    job = b"{name: new, namespace: fresh, queue: research, pods: 9, requests: {gpu: 8}}"
    status, document = ask(f"{page}/api/v1/plan", body=job, headers=asking)
    assert (status, document["gangs"][0]["gang"]) == (200, "fresh/new")
    group = (
        b"{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: a, namespace: fresh}, spec: {minMember: 2}}"
    )
    status, document = ask(f"{page}/api/v1/plan", body=group, headers=asking)
    assert (status, "another tenant" in document["error"]) == (400, False)


def test_errors_of_plans_name_nothing_of_others(page: str) -> None:
    for job in (
        b"{name: new, namespace: research, queue: prdo, pods: 1, requests: {gpu: 8}}",
        b"{name: new, namespace: research, queue: research, pods: 1, requests: {gpu: 8}, priorityClass: nope}",
        b"kind: Pod\napiVersion: v1\nmetadata: {name: xl-0, namespace: research}\nspec: {nodeName: b9, containers: []}",
    ):
        document = ask(f"{page}/api/v1/plan?outlook=true", body=job, headers={"Authorization": "Bearer researcher"})[1]
        assert "prod" not in json.dumps(document).replace("prdo", "")


def test_expected_starts_are_those_of_her_gangs(page: str) -> None:
    found = {user: [row["gang"] for row in get(page, "starts", user)[1]["starts"]] for user in MAY_LIST}
    assert found == {"operator": ["research/huge"], "researcher": ["research/huge"], "guest": []}


def test_a_stream_ends_when_its_token_does(tmp_path: Path) -> None:
    views = _CountingViews(read_views(scenario(tmp_path)))
    refused: set[str] = set()

    async def review(path: str, manifest: dict[str, Any]) -> bytes:
        found = msgspec.json.decode(await FakeReviews()(path, manifest))
        if manifest["spec"].get("token") in refused:
            found["status"] = {"authenticated": False}
        return msgspec.json.encode(found)

    with serving(views, TokenAccess(review, clock=lambda: views.number * CACHE_S)) as address:
        request = urllib.request.Request(f"{address}/api/v1/events", headers={"Authorization": "Bearer researcher"})
        with urllib.request.urlopen(request, timeout=20) as stream:
            assert stream.readline() == b"event: cycle\n"
            refused.add("researcher")
            views.number += 1
            rest = stream.read()
    assert b"event: cycle" not in rest


def test_what_is_remembered_of_a_token_ends_with_it() -> None:
    now, reviews = [1000.0], FakeReviews()
    claims = base64.urlsafe_b64encode(b'{"exp": 1010}').decode().rstrip("=")
    token = f"e30.{claims}.x"
    MAY_LIST[token] = {""}

    async def steps() -> None:
        access = TokenAccess(reviews, clock=lambda: now[0], wall_clock=lambda: now[0])
        for at, asked in ((1000.0, 1), (1009.0, 1), (1011.0, 2)):
            now[0] = at
            await access.reader(remote="10.0.0.7", host="", token=token)
            assert len(reviews.asked) == asked

    try:
        asyncio.run(steps())
    finally:
        del MAY_LIST[token]


@pytest.mark.parametrize("jump_s", [-1e6, 1e6])
def test_a_clock_that_jumps_neither_ends_a_token_nor_keeps_it(monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    """Whether it has ended the API server says; for how long its answer counts runs on the monotonic clock."""
    now, wall, reviews = [0.0], [1000.0], FakeReviews()
    claims = base64.urlsafe_b64encode(b'{"exp": 5000}').decode().rstrip("=")
    monkeypatch.setitem(MAY_LIST, f"e30.{claims}.x", {""})

    async def steps() -> None:
        access = TokenAccess(reviews, clock=lambda: now[0], wall_clock=lambda: wall[0])
        token = f"e30.{claims}.x"
        await access.reader(remote="10.0.0.7", host="", token=token)
        wall[0] += jump_s
        now[0] += CACHE_S + 1
        await access.reader(remote="10.0.0.7", host="", token=token)
        assert len(reviews.asked) == 2
        monkeypatch.delitem(MAY_LIST, token)
        now[0] += CACHE_S + 1
        with pytest.raises(Denied):
            await access.reader(remote="10.0.0.7", host="", token=token)

    asyncio.run(steps())


class _CountingViews:
    """The same view after several cycles."""

    def __init__(self, views: RecordedViews) -> None:
        self.number = 1
        self._views = views
        self.entries, self.question_state = views.entries, views.question_state

    async def view(self, at: float | None = None) -> ClusterView:
        return replace(await self._views.view(at), cycle=self.number)


def test_a_history_names_no_gang_of_others() -> None:
    entries = [
        {"time": 1.0, "event": "evict", "for_gang": "prod/xl", "victims": ["research/a-0"], "why": "for prod/xl", "pods": 1},
        {"time": 2.0, "event": "evicts", "for_gang": "research/b", "victim": "research/a", "why": "priority", "pods": 1},
        {"time": 3.0, "event": "bind", "why": "it fits", "pods": 2},
    ]
    first, *rest = visible_entries(entries, frozenset({"research"}), str)
    assert first == {"time": 1.0, "event": "evict", "pods": 1}
    assert rest == entries[1:]
    assert visible_entries(entries, None, str) == entries


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
