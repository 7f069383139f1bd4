"""Whoever may connect and means no good: what she sends is refused with a sentence, and costs nobody else anything."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.cli.commands import ROOT
from tests.web.served import ask, scenario, serving_file

from muster.cli.cluster_state import ClusterOptions
from muster.cli.view import read_views
from muster.web import dry_runs, http_server
from muster.web.api_server import static_text
from muster.web.dry_runs import MAX_JOB_BYTES, MAX_RUNNING, DryRuns

JOB = b"{name: new, namespace: prod, queue: prod, pods: 1, requests: {gpu: 8}}"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving_file(scenario(tmp_path_factory.mktemp("page"))) as address:
        yield address


def connected(page: str) -> socket.socket:
    host, port = page.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_a_job_may_come_in_pieces_and_is_bounded_whatever_it_says_of_its_length(page: str) -> None:
    padded = JOB + b"\n" + b"#" * 300_000
    pieces = [padded[at : at + 50_000] for at in range(0, len(padded), 50_000)]
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in pieces) + b"0\r\n\r\n"
    assert ask(f"{page}/api/v1/plan", body=padded)[0] == 200
    head = b"POST /api/v1/plan HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    for body, status in ((chunked, b"200"), (b"%x\r\n%s\r\n" % (MAX_JOB_BYTES + 1, b"#" * (MAX_JOB_BYTES + 1)), b"413")):
        with connected(page) as client:
            client.sendall(head + body)
            assert client.recv(12).split()[1] == status


def test_what_is_no_http_is_refused_and_fills_no_log(page: str, caplog: pytest.LogCaptureFixture) -> None:
    """A header that is too long may be a token."""
    head = b"GET /api/v1/summary HTTP/1.1\r\n"
    for sent in (
        b"NONSENSE\r\n\r\n",
        head + b"\r\n",
        head + b"Host: localhost\r\nAuthorization: Bearer " + b"x" * 100_000 + b"\r\n\r\n",
    ):
        with connected(page) as client:
            with suppress(ConnectionError):
                client.sendall(sent)
            assert client.recv(12).split()[1] == b"400"
    assert caplog.records == []


def test_whoever_opens_many_connections_loses_the_oldest_and_keeps_nobody_out(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 20)
    clients = [connected(page) for _ in range(50)]
    try:
        assert ask(f"{page}/api/v1/summary")[0] == 200
        clients[0].settimeout(10)
        assert clients[0].recv(100) == b""
    finally:
        for client in clients:
            client.close()


def test_a_request_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_IDLE_S", 1.0)
    with serving_file(scenario(tmp_path)) as address, connected(address) as silent, connected(address) as slow:
        slow.sendall(b"GET /api/v1/summary HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        assert [silent.recv(1), slow.recv(1)] == [b"", b""]


def test_a_reader_that_takes_nothing_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_STUCK_S", 1.0)
    monkeypatch.setattr(http_server, "_CHECK_INTERVAL_S", 0.2)
    many = 5000
    with serving_file(scenario(tmp_path)) as address, connected(address) as stuck:
        stuck.settimeout(5)
        with suppress(OSError):
            stuck.sendall(b"GET /map.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * many)
            # Whatever was sent before is still there to be read.
            time.sleep(4)
        got = 0
        with suppress(ConnectionError):
            while piece := stuck.recv(2**20):
                got += len(piece)
    assert 0 < got < many * len(static_text("map.js"))


@pytest.mark.parametrize(
    ("name", "value"), [("Origin", "http://evil.example"), ("Origin", "null"), ("Sec-Fetch-Site", "same-site")]
)
@pytest.mark.parametrize("path", ["plan", "summary", "events", "why/research/huge"])
def test_pages_of_other_sites_may_ask_nothing(page: str, path: str, name: str, value: str) -> None:
    body = JOB if path == "plan" else None
    assert ask(f"{page}/api/v1/{path}", body=body, headers={name: value})[0] == 403
    if path == "summary":
        assert ask(f"{page}/api/v1/{path}", headers={"Origin": page})[0] == 200


@pytest.mark.parametrize("at", ["nan", "inf", "-inf", "1e999", "noon", "%00"])
def test_what_is_no_time_is_refused(page: str, at: str) -> None:
    assert ask(f"{page}/api/v1/cluster?at={at}")[0] == 400


@pytest.mark.parametrize(
    "path", ["/../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/static/app.js", "/app.js/..", "/api/v1/"]
)
def test_nothing_but_the_page_is_served(page: str, path: str) -> None:
    with connected(page) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert client.recv(12).split()[1] in (b"400", b"404")


REPLICAS = "spec: {replicas: 1000000000, template: {spec: {containers: [{name: c}]}}}"
HOSTILE_JOBS = {
    "deep": b"[" * 100_000,
    "deep maps": b"".join(b" " * at + b"a:\n" for at in range(800)),
    "bomb": b"a: &a [x,x,x,x]\n" + b"".join(b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in range(98, 110)),
    "tags": b"!!python/object/apply:os.system ['true']",
    "nul": b"a: \x00",
    "many members": b"{name: new, namespace: prod, queue: prod, pods: 1000000000, requests: {gpu: 8}}",
    "many replicas": f"{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: a}}, {REPLICAS}}}".encode(),
    "digits": b"{name: new, namespace: prod, queue: prod, pods: %s, requests: {gpu: 8}}" % (b"9" * 100_000),
    "exponent": b"{name: new, namespace: prod, queue: prod, pods: 1, requests: {cpu: 1e999999999}}",
    "range": b"{name: 'new[1-999999999]', namespace: prod, queue: prod, pods: 1, requests: {gpu: 8}}",
    "documents": b"---\n{}\n" * 100_000,
    "binary": b"\xff\xfe\x00a",
}


@pytest.mark.parametrize("job", HOSTILE_JOBS.values(), ids=HOSTILE_JOBS.keys())
def test_hostile_jobs_are_refused_or_answered_and_the_next_one_is_as_well(page: str, job: bytes) -> None:
    status, document = ask(f"{page}/api/v1/plan", body=job)
    assert (status, bool(document["error"])) == (400, True)
    assert ask(f"{page}/api/v1/plan", body=JOB)[0] == 200


def test_a_reader_who_goes_leaves_no_question_behind() -> None:
    """With both places taken by questions whose askers are gone, the next one is answered at once."""
    views = read_views(ClusterOptions(str(ROOT / "scenarios/demo.yaml"), quiet=True))
    name = next(row["gang"] for row in asyncio.run(views.view()).gangs)

    async def steps() -> tuple[int, float]:
        with closing(DryRuns()) as runs:
            question = {"ask": "why", "gang": name, "outlook": False}
            await runs.ask(question, views.question_state)
            gone = [asyncio.create_task(runs.ask({"ask": "starts"}, views.question_state)) for _ in range(MAX_RUNNING)]
            await asyncio.sleep(0.05)
            for each in gone:
                each.cancel()
            return (await runs.ask(question, views.question_state)).status, len(gone)

    assert asyncio.run(steps()) == (200, MAX_RUNNING)


def test_when_nobody_asks_any_more_no_process_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_runs, "KEEP_S", 0.1)
    views = read_views(ClusterOptions(str(ROOT / "scenarios/demo.yaml"), quiet=True))

    async def steps() -> tuple[int, int]:
        runs = DryRuns()
        first = await runs.ask({"ask": "starts"}, views.question_state)
        process = runs._first
        assert process is not None
        while runs._first is not None:
            await asyncio.sleep(0.05)
        assert process.is_gone
        again = await runs.ask({"ask": "starts"}, views.question_state)
        runs.close()
        return first.status, again.status

    assert asyncio.run(steps()) == (200, 200)


def test_a_process_that_dies_is_replaced() -> None:
    views = read_views(ClusterOptions(str(ROOT / "scenarios/demo.yaml"), quiet=True))
    name = next(row["gang"] for row in asyncio.run(views.view()).gangs)

    async def steps() -> list[int]:
        with closing(DryRuns()) as runs:
            question, found = {"ask": "why", "gang": name, "outlook": False}, []
            for _ in range(2):
                found.append((await runs.ask(question, views.question_state)).status)
                runs.close()
            return found

    assert asyncio.run(steps()) == [200, 200]
