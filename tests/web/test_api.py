"""The API: what it answers, what it refuses, and that its description is true."""

from __future__ import annotations

import asyncio
import http.client
import json
import pickle
import re
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.commands import ROOT, muster
from tests.web.served import ask, scenario, serving_file

from muster.cli.cluster_state import ClusterOptions, ClusterState
from muster.cli.view import read_views
from muster.config import default_policy, load_policy
from muster.forecast.dry_run import dry_run, forecast
from muster.forecast.gang_report import BeforeCycle, before_cycle, described, with_cycle
from muster.jobs.job_input import JobOptions, plan_answers, plan_document, read_job
from muster.json_values import to_json
from muster.web.api_access import Denied, LoopbackAccess
from muster.web.api_server import SCRIPTS, static_text
from muster.web.cluster_view import PARTS
from muster.web.dry_runs import MAX_JOB_BYTES, MAX_QUEUED, MAX_RUNNING, DryRuns

OPEN_API = json.loads(static_text("openapi.json"))
ANY_JOB = "{name: new, pods: 2, requests: {gpu: 1}}"
JOB = b"{name: new, namespace: prod, queue: prod, pods: 1, requests: {gpu: 8}}"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving_file(scenario(tmp_path_factory.mktemp("page"))) as address:
        yield address


def get(page: str, path: str) -> Any:
    status, document = ask(f"{page}/api/v1/{path}")
    assert status == 200, document
    return document


# -- the description -----------------------------------------------------------------------------------------------------------


def schema_of(path: str, *, method: str = "get", status: str = "200") -> dict[str, Any]:
    content = OPEN_API["paths"][f"/api/v1/{path}"][method]["responses"][status]["content"]
    found: dict[str, Any] = content["application/json"]["schema"]
    return found


KINDS: dict[str, Any] = {
    **{"string": str, "integer": int, "number": (int, float), "boolean": bool},
    **{"array": list, "object": dict, "null": type(None)},
}


def faults(value: Any, schema: dict[str, Any], at: str = "") -> Iterator[str]:
    """As much of JSON Schema as the description uses."""
    if "$ref" in schema:
        schema = OPEN_API["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "oneOf" in schema:
        if all(list(faults(value, each)) for each in schema["oneOf"]):
            yield f"{at}: none of several schemas"
        return
    named = schema.get("type", [])
    wanted = [named] if isinstance(named, str) else named
    if wanted and not any(isinstance(value, KINDS[kind]) for kind in wanted):
        yield f"{at}: {value!r} is no {named}"
    elif value not in schema.get("enum", [value]) or value != schema.get("const", value):
        yield f"{at}: {value!r} is not allowed"
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from faults(item, schema.get("items", {}), f"{at}[{number}]")
    elif isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", {})
        yield from (f"{at}: {key} is missing" for key in schema.get("required", []) if key not in value)
        for key, item in value.items():
            if key in known:
                yield from faults(item, known[key], f"{at}.{key}")
            elif rest is False:
                yield f"{at}: {key} is not described"
            elif isinstance(rest, dict):
                yield from faults(item, rest, f"{at}.{key}")


@pytest.mark.parametrize("path", [*PARTS, "cluster"])
def test_each_part_is_as_described(page: str, path: str) -> None:
    document = get(page, path)
    assert list(faults(document, schema_of(path))) == []
    assert all(document[part] for part in (PARTS if path == "cluster" else [path]))


def test_one_gang_an_answer_and_a_plan_are_as_described(page: str) -> None:
    assert list(faults(get(page, "gangs/prod/xl"), schema_of("gangs/{namespace}/{name}"))) == []
    told = get(page, "why/research/huge")
    assert list(faults(told, schema_of("why/{namespace}/{name}"))) == []
    assert (told["forecast"]["code"], told["position"]) == (3, 1)
    status, plan = ask(f"{page}/api/v1/plan", body=JOB)
    assert (status, list(faults(plan, schema_of("plan", method="post")))) == (200, [])
    status, error = ask(f"{page}/api/v1/gangs/prod/none")
    assert (status, list(faults(error, schema_of("gangs/{namespace}/{name}", status="404")))) == (404, [])


def test_a_document_that_is_not_as_described_is_noticed() -> None:
    schema = schema_of("summary")
    assert list(faults({"apiVersion": 2, "cycle": "1", "summary": {"wrong": 1}}, schema))[:3] == [
        ": time is missing",
        ".apiVersion: 2 is not allowed",
        ".cycle: '1' is no integer",
    ]


def test_every_route_is_described_and_no_other(page: str) -> None:
    source = (Path(__file__).parents[2] / "src/muster/web/api_server.py").read_text(encoding="utf-8")
    routes = {path.replace("{{", "{").replace("}}", "}") for path in re.findall(r'f"\{API\}/([^"]+)"', source)} - {"{part}"}
    assert {f"/api/v1/{path}" for path in (routes | {*PARTS, "cluster"})} == set(OPEN_API["paths"])
    assert get(page, "openapi.json") == OPEN_API


# -- what it says --------------------------------------------------------------------------------------------------------------


def test_the_figures_agree_with_each_other(page: str) -> None:
    cluster = get(page, "cluster")
    assert cluster["summary"]["used"] == sum(node["used"].get("nvidia.com/gpu", 0) for node in cluster["nodes"])
    assert cluster["summary"]["allocatable"] == 32
    assert [(row["domain"], row["nodes"], row["allocatable"]) for row in cluster["domains"]] == [("1:a", 2, 16), ("1:b", 2, 16)]
    assert {node["domain"] for node in cluster["nodes"]} == {"1:a", "1:b"}


def test_a_gang_that_waits_says_why_and_one_that_runs_has_a_history(page: str) -> None:
    (waiting,) = get(page, "gangs?stage=waiting&namespace=research&queue=research")["gangs"][:1]
    assert waiting["why"]
    assert waiting["code"]
    told = get(page, "gangs/prod/xl")
    assert {entry["event"] for entry in told["history"]} >= {"nominate", "evicts"}
    assert [member["pod"] for member in told["members"]] == ["prod/xl-0", "prod/xl-1"]


def test_the_ledger_says_who_lost_what_for_whom(page: str) -> None:
    (row,) = get(page, "evictions")["evictions"]
    assert (row["gang"], row["queue"], row["forGang"], row["forQueue"]) == (
        "research/llm",
        "queue/research",
        "prod/xl",
        "queue/prod",
    )
    assert row["pods"] in (1, 2)
    assert row["lostGpuHours"] == pytest.approx(row["pods"] * 8 * (2 + 2.5 / 60), rel=0.1)


def test_the_past_can_be_looked_at(page: str) -> None:
    times = get(page, "timeline")["timeline"]["times"]
    before, now = (get(page, f"cluster?at={at}") for at in (times[0], times[-1]))
    assert (before["time"], now["time"]) == (times[0], times[-1])
    assert not before["evictions"]
    assert "prod/xl" not in {row["gang"] for row in before["gangs"]}
    assert ask(f"{page}/api/v1/nodes?at=noon")[0] == 400


def test_a_job_that_cannot_run_says_so(page: str) -> None:
    status, plan = ask(f"{page}/api/v1/plan", body=b"{name: big, namespace: prod, queue: prod, pods: 9, requests: {gpu: 8}}")
    assert (status, plan["code"], plan["gangs"][0]["gang"]) == (200, 3, "prod/big")


def test_a_namespace_that_is_not_the_jobs_own_is_refused(page: str) -> None:
    job = b"{name: new, namespace: prod, queue: prod, pods: 1, requests: {gpu: 8}}"
    status, document = ask(f"{page}/api/v1/plan?namespace=research", body=job)
    assert status == 400
    assert "its namespace is prod, but research was asked for" in document["error"]
    assert ask(f"{page}/api/v1/plan?namespace=prod", body=job)[0] == 200


def test_events_follow_the_cycles(page: str) -> None:
    with urllib.request.urlopen(f"{page}/api/v1/events", timeout=10) as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        assert stream.readline() == b"event: cycle\n"
        data = json.loads(stream.readline().removeprefix(b"data: "))
    assert data["summary"] == get(page, "summary")["summary"]


def test_a_question_with_an_outlook_says_when_it_starts_and_what_would_make_it_run(page: str) -> None:
    """Without one it is the same but for this, and takes no time."""
    answer, more = (get(page, f"why/research/huge?outlook={outlook}")["forecast"] for outlook in ("false", "true"))
    assert (answer["start"], answer["remedies"]) == (None, [])
    assert more["start"] is not None
    assert more["remedies"]
    left_out = ("start", "remedies", "remediesCutShort")
    assert {key: each for key, each in answer.items() if key not in left_out} == {
        key: each for key, each in more.items() if key not in left_out
    }
    job = b"{name: big, namespace: prod, queue: prod, pods: 9, requests: {gpu: 8}}"
    assert [bool(ask(f"{page}/api/v1/plan?outlook={each}", body=job)[1]["gangs"][0]["remedies"]) for each in ("false", "true")] == [
        False,
        True,
    ]
    assert ask(f"{page}/api/v1/why/research/huge?outlook=maybe")[0] == 400


def test_expected_starts_are_as_described_and_worked_out_once(page: str) -> None:
    document = get(page, "starts")
    assert list(faults(document, schema_of("starts"))) == []
    assert [row["gang"] for row in document["starts"]] == ["research/huge"]
    assert get(page, "starts") == document


@pytest.mark.parametrize("file", ["demo.yaml", "lifecycle/backfill-reservations.yaml:2", "stories/02-accumulating-gangs.yaml:15"])
def test_a_fork_answers_what_a_cycle_of_its_own_would(file: str) -> None:
    """Of every gang, running or not: nothing of what a question or another answer did remains."""
    options = ClusterOptions(str(ROOT / "scenarios" / file), quiet=True)
    views = read_views(options)

    objects, now, source = pickle.loads(asyncio.run(views.question_state()))
    policy = load_policy(source) if source else default_policy()
    question = {"ask": "plan", "job": ANY_JOB, "namespace": "", "outlook": False}

    def cold_why(name: str) -> Any:
        seen: list[BeforeCycle] = []
        run = dry_run(policy, objects, now=now, look=lambda s: seen.append(before_cycle(s)))
        gang = next(gang for gang in run.gangs.values() if gang.full_name == name)
        return to_json(with_cycle(described(seen[0], gang), run, gang))

    def cold_plan() -> Any:
        state = ClusterState(tuple(objects), now, policy)
        job = read_job([("job", ANY_JOB)], state, JobOptions(), name="job")
        (found,) = plan_answers(forecast(policy, (*objects, *job.objects), job.uids, now=now), job)
        return plan_document(found)

    async def warm(names: list[str]) -> list[Any]:
        with closing(DryRuns()) as runs:
            await runs.ask({**question, "outlook": True}, views.question_state)
            asked = [{"ask": "why", "gang": name, "outlook": False} for name in names]
            whys = [(await runs.ask(each, views.question_state)).body for each in asked]
            return [*whys, (await runs.ask(question, views.question_state)).body["gangs"][0]]

    names = [row["gang"] for row in asyncio.run(views.view()).gangs][:6]
    assert names
    found = msgspec.json.decode(msgspec.json.encode([*map(cold_why, names), cold_plan()]))
    assert asyncio.run(warm(names)) == found


# -- what it refuses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("job", [b"[[[", b"\xff"])
def test_what_is_no_job_is_refused_with_a_sentence(page: str, job: bytes) -> None:
    status, document = ask(f"{page}/api/v1/plan", body=job)
    assert status == 400
    assert document["error"]


def test_a_job_has_a_limit_and_pages_of_others_may_not_ask(page: str) -> None:
    assert ask(f"{page}/api/v1/plan", body=b"#" * (MAX_JOB_BYTES + 1))[0] == 413
    assert ask(f"{page}/api/v1/plan", body=JOB, headers={"Sec-Fetch-Site": "cross-site"})[0] == 403
    status, document = ask(f"{page}/api/v1/summary", headers={"Host": "evil.example:80"})
    assert (status, "localhost" in document["error"]) == (403, True)


def test_nothing_can_be_written(page: str) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        request = urllib.request.Request(f"{page}/api/v1/queues", data=b"{}", method=method)
        with pytest.raises(urllib.request.HTTPError) as error:
            urllib.request.urlopen(request, timeout=10)
        assert (error.value.code, error.value.headers["Allow"]) == (405, "GET,HEAD")
        assert json.loads(error.value.read()) == {"error": f"{method} is not allowed here"}
        error.value.close()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nothing", "there is no /api/v1/nothing; see /api/v1/openapi.json"),
        ("gangs/", "there is no /api/v1/gangs/; see /api/v1/openapi.json"),
        ("gangs?stage=wating", "there is no stage 'wating'; known: waiting-for-pods, waiting, "),
        ("gangs?namspace=prod", "there is no parameter 'namspace' here; known: at, namespace, queue, stage"),
        ("gangs?stage=waiting&stage=running", "stage is given twice"),
        ("why/prod/xl?at=0", "there is no parameter 'at' here; known: outlook"),
        ("events?at=0", "there is no parameter 'at' here; known: none"),
    ],
)
def test_a_slip_is_refused_with_a_sentence_in_json(page: str, path: str, said: str) -> None:
    status, document = ask(f"{page}/api/v1/{path}")
    assert status == (404 if "openapi.json" in said else 400)
    assert document["error"].startswith(said)
    assert list(faults(document, {"$ref": "#/components/schemas/Error"})) == []


def test_a_head_has_what_a_get_has_but_the_body(page: str) -> None:
    host, port = page.removeprefix("http://").split(":")
    answers = []
    for method in ("GET", "HEAD"):
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        with closing(connection):
            connection.request(method, "/api/v1/gangs?stage=waiting")
            answer = connection.getresponse()
            answers.append((answer.status, answer.headers["Content-Length"], answer.headers["Content-Type"]))
            assert bool(answer.read()) == (method == "GET")
    assert answers[0] == answers[1]


def test_a_question_that_takes_too_long_ends_and_too_many_are_refused() -> None:
    async def state() -> bytes:
        return b""

    async def steps() -> tuple[int, list[int]]:
        with closing(DryRuns(timeout_s=0.01)) as alone, closing(DryRuns(timeout_s=0.01)) as many:
            slow = await alone.ask({"ask": "why", "gang": "a/b"}, state)
            asked = [many.ask({"ask": "why", "gang": "a/b"}, state) for _ in range(MAX_RUNNING + MAX_QUEUED + 3)]
            return slow.status, [answer.status for answer in await asyncio.gather(*asked)]

    slow, many = asyncio.run(steps())
    assert slow == 504
    assert many.count(429) == 3


def test_a_reader_that_reads_nothing_delays_nobody(page: str) -> None:
    host, port = page.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as stuck:
        stuck.sendall(b"GET /api/v1/cluster HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
        assert get(page, "summary")["summary"]["nodes"] == 4


def test_the_page_may_load_nothing_from_elsewhere(page: str) -> None:
    for path in ("/", *(f"/{name}" for name in SCRIPTS), "/style.css", "/api/v1/summary"):
        with urllib.request.urlopen(page + path, timeout=10) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("remote", "host", "status"),
    [
        ("127.0.0.1", "localhost:10259", 200),
        ("::1", "[::1]:10259", 200),
        ("127.0.0.1", "127.0.0.1", 200),
        ("::ffff:127.0.0.1", "localhost", 200),
        ("10.0.0.7", "localhost:10259", 403),
        ("127.0.0.1", "evil.example:10259", 403),
        ("127.0.0.1", "127.0.0.1.evil.example", 403),
        ("127.0.0.1", "", 403),
    ],
)
def test_on_the_address_of_the_probes_only_this_machine_is_answered(remote: str, host: str, status: int) -> None:
    async def steps() -> int:
        try:
            reader = await LoopbackAccess().reader(remote=remote, host=host, token="")
        except Denied as denied:
            return denied.status
        assert await reader.visible(_none) is None
        return 200

    assert asyncio.run(steps()) == status


async def _none() -> list[str]:
    return []


OF_OTHERS = """
name: another scheduler serves a gang
nodes: [{name: n1, gpu: 8}]
gangs:
- {name: llm, pods: 2, requests: {gpu: 1}, schedulerName: volcano}
- {name: own, pods: 2, requests: {gpu: 1}}
"""


def test_why_names_the_other_scheduler_that_serves_a_gang(tmp_path: Path) -> None:
    with serving_file(scenario(tmp_path, OF_OTHERS)) as address:
        assert get(address, "why/default/llm")["otherSchedulers"] == {"volcano": 2}
        assert get(address, "why/default/own")["otherSchedulers"] == {}


def test_a_report_says_with_which_changes_gangs_that_wait_would_run(tmp_path: Path) -> None:
    ran = muster("sim", "-q", ROOT / "scenarios" / "demo.yaml", "--html", tmp_path / "report.html")
    assert ran.code == 0, ran.err
    [document] = re.findall(r'<script type="application/json" id="report">(.*?)</script>', (tmp_path / "report.html").read_text())
    remedies = json.loads(document)["remedies"]
    waiting = {
        row["gang"]
        for frame in json.loads(document)["frames"][-1:]
        for row in frame["gangs"]["changed"]
        if row["stage"] == "waiting"
    }
    assert waiting <= remedies.keys()
    assert "its minimum were 6" in [each["what"] for each in remedies["research/llm-13b"]["remedies"]]
