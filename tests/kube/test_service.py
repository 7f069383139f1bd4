"""What a running scheduler exports: probes, metrics, log lines, and a decision log that is rotated."""

import asyncio
import io
import json
import os
import re
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import structlog
from tests.cli.commands import ROOT

from muster.cycle_log import CycleLog
from muster.decision_log import LogHeader, read_decision_log
from muster.kube.watch.reflector import WatchHealth
from muster.model.effects import Bind, Evict, Nominate, Outcome, Verdict
from muster.model.events import BindFailed, Delete, Upsert
from muster.model.node import Node
from muster.model.pod import Pod, PodSignature
from muster.rotating_decision_log import RotatingDecisionLog
from muster.service.log_setup import REDACTED, LogFormat, redact_secrets, set_up_logging
from muster.service.metric_specs import METRICS
from muster.service.probe_server import ProbeServer
from muster.service.prometheus_metrics import Metrics, ServiceState
from muster.service.scheduling_loop import MonotonicClock
from muster.web.api_access import is_local
from muster.web.http_server import BadAddress, read_address


def state(*, leads: bool = True, synced: bool = True, age_s: float = 0.0, refused: bool = False) -> ServiceState:
    health = {
        ("", "Pod"): WatchHealth(last_received_at=0.0, events=3, relists=1, forbidden=refused),
        ("scheduling.volcano.sh", "Queue"): WatchHealth(last_received_at=0.0, not_served=True, forbidden=refused),
    }
    return ServiceState(
        is_leader=lambda: leads,
        is_synced=lambda: synced,
        loop_age_s=lambda: age_s,
        pending_writes=lambda: 7,
        backlog=lambda: 2,
        objects_ignored=lambda: 0,
        events_dropped=lambda: 5,
        health=lambda: health,
    )


def bind(number: int, *, gang: str = "a/g") -> Bind:
    return Bind(f"uid-{number}", f"a/p-{number}", f"n{number % 2}", gang, "it fits")


# --- Probes --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "health", "readiness"),
    [
        (state(), (200, "ok"), (200, "leading")),
        (state(leads=False, synced=False), (200, "ok"), (200, "standby: another replica holds the lease")),
        (state(synced=False), (200, "ok"), (503, "leading, caches not synced")),
        (state(refused=True), (200, "ok"), (503, "leading, not allowed to read: Pod")),
        (state(age_s=61.0), (503, "no iteration of the scheduling loop for 61 s"), (200, "leading")),
    ],
)
def test_pages_show_the_health_of_the_scheduler(shown: ServiceState, health: tuple[int, str], readiness: tuple[int, str]) -> None:
    pages = ProbeServer(shown, Metrics())
    assert pages.health() == health
    assert pages.readiness() == readiness


def test_pages_are_served_read_only() -> None:
    metrics = Metrics()
    metrics.collect_from(state())

    async def steps() -> dict[str, tuple[int, str]]:
        async with ProbeServer(state(), metrics).served(("127.0.0.1", 0)) as (host, port):
            root = f"http://{host}:{port}"
            return {page: await asyncio.to_thread(_get, root + page) for page in ("/healthz", "/readyz", "/metrics", "/", "/debug")}

    answers = asyncio.run(steps())
    assert {page: status for page, (status, _) in answers.items()} == {
        "/healthz": 200,
        "/readyz": 200,
        "/metrics": 200,
        "/": 404,
        "/debug": 404,
    }
    assert 'muster_watch_events_total{resource="Pod"} 3.0' in answers["/metrics"][1]
    assert 'muster_watch_event_age_seconds{resource="Queue.scheduling.volcano.sh"} 0.0' in answers["/metrics"][1]


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def test_a_page_of_another_site_reads_no_names_of_queues() -> None:
    """It was resolved to this machine, and names itself."""
    metrics = Metrics()
    metrics.count_wait("queue/team", 3.0)

    async def steps() -> list[bool]:
        async with ProbeServer(state(), metrics).served(("127.0.0.1", 0)) as (host, port):
            found = []
            for named in (f"localhost:{port}", f"{host}:{port}", f"evil.example:{port}"):
                request = urllib.request.Request(f"http://{host}:{port}/metrics", headers={"Host": named})
                found.append("queue/team" in (await asyncio.to_thread(_text, request)))
            return found

    assert asyncio.run(steps()) == [True, True, False]


def _text(request: urllib.request.Request) -> str:
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.read().decode())


def test_addresses_are_read_as_they_are_usually_written() -> None:
    assert read_address("127.0.0.1:10259") == ("127.0.0.1", 10259)
    assert read_address("[::1]:0") == ("::1", 0)
    assert read_address(":80") == ("", 80)
    for wrong in ("", "here", "1.2.3.4:", "1.2.3.4:http", "1.2.3.4:70000"):
        with pytest.raises(BadAddress):
            read_address(wrong)


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_no_host_is_all_addresses_of_both_families() -> None:
    async def steps() -> None:
        async with ProbeServer(state(), Metrics()).served(read_address(":0")) as (_, port):
            hosts = ["127.0.0.1", *(["[::1]"] if _has_ipv6() else [])]
            for host in hosts:
                assert await asyncio.to_thread(_get, f"http://{host}:{port}/healthz") == (200, "ok\n")

    asyncio.run(steps())


# --- Metrics ------------------------------------------------------------------------------------------------------------------


def test_strangers_do_not_read_names_of_queues() -> None:
    assert [is_local(each) for each in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.7", "fd00::1", "")] == [True] * 3 + [
        False
    ] * 3
    page = Metrics().page(queues=False).decode()
    assert "muster_pending_pods" in page
    assert "muster_queue" not in page


def test_the_documented_metrics_are_those_that_exist() -> None:
    document = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(muster_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", document, re.MULTILINE)
    assert rows == [(one.name, one.kind, ", ".join(f"`{label}`" for label in one.labels), one.description) for one in METRICS]
    metrics = Metrics()
    metrics.collect_from(state())
    shown = set(re.findall(r"# TYPE (\w+) ", metrics.page().decode()))
    exported = {name for name in shown if not name.endswith("_created")}
    assert exported == {metric.name for metric in METRICS}


def test_a_cycle_is_measured_by_its_parts() -> None:
    seconds = iter((0.0, 0.0, 1.0, 3.0, 3.5, 3.5))
    metrics = Metrics(clock=lambda: next(seconds))
    metrics.begin()
    metrics.on_step("allocate")
    metrics.on_step("commit")
    nominated = Nominate("u", "a/p", "n", "a/g", "w", "c")
    evicted = Evict("v", "a/v", "n", "a/h", "a/g", "w", "gang-preempt", "evict")
    stats = (("attempts", 1), ("reservations bound", 2), ("gangs timed out", 1))
    assert metrics.end(Outcome(1, 0.0, (bind(1), nominated, evicted), (), stats)) == 3.5
    metrics.count_failures([BindFailed("u", "n", "why")])
    text = metrics.page().decode()
    for line in (
        'muster_cycle_phase_duration_seconds_sum{phase="events"} 1.0',
        'muster_cycle_phase_duration_seconds_sum{phase="allocate"} 2.0',
        'muster_cycle_phase_duration_seconds_sum{phase="commit"} 0.5',
        'muster_decisions_total{effect="bind"} 1.0',
        'muster_evictions_total{action="gang-preempt",method="evict"} 1.0',
        'muster_reservations_total{result="made"} 1.0',
        'muster_reservations_total{result="bound"} 2.0',
        "muster_gangs_timed_out_total 1.0",
        'muster_binds_total{result="failed"} 1.0',
    ):
        assert line in text


# --- Log lines ----------------------------------------------------------------------------------------------------------------


def test_the_binds_of_a_gang_are_one_line_and_so_are_its_evictions() -> None:
    victims = [Evict(f"v{n}", f"a/v-{n}", "n", "a/h", "a/g", "priority 1 < 2", "gang-preempt") for n in range(12)]
    entries = CycleLog().entries(Outcome(1, 0.0, (*map(bind, range(4)), bind(9, gang="a/other"), *victims)))
    assert [(line.event, line.fields["gang"], line.fields["pods"]) for line in entries] == [
        ("bind", "a/g", 4),
        ("bind", "a/other", 1),
        ("evict", "a/h", 12),
    ]
    assert entries[0].fields["nodes"] == ["n0", "n1"]
    assert entries[2].fields["for_gang"] == "a/g"
    assert entries[2].fields["victims"][-1] == "and 4 more"


def test_a_waiting_gang_is_logged_when_there_is_news() -> None:
    cycle_log = CycleLog()

    def report_waiting(now: float, code: str, why: str) -> list[str]:
        entries = cycle_log.entries(Outcome(1, now, (), (("a/g", Verdict(ok=False, code=code, why=why)),)))
        return [str(line.fields["why"]) for line in entries]

    assert report_waiting(0.0, "InsufficientCapacity", "2 of 4") == ["2 of 4"]
    assert report_waiting(1.0, "InsufficientCapacity", "2 of 4") == []
    assert report_waiting(2.0, "InsufficientCapacity", "3 of 4") == []
    assert report_waiting(61.0, "InsufficientCapacity", "3 of 4") == ["3 of 4"]
    assert report_waiting(62.0, "QueueLimit", "full") == ["full"]
    cycle_log.entries(Outcome(2, 63.0, (bind(1),)))
    assert report_waiting(64.0, "QueueLimit", "full") == ["full"]


@pytest.fixture
def logs() -> Iterator[io.StringIO]:
    written = io.StringIO()
    with mock.patch.object(sys, "stderr", written):
        set_up_logging(LogFormat.JSON)
        yield written
    structlog.reset_defaults()


def test_a_log_line_is_json_and_shows_no_secret(logs: io.StringIO) -> None:
    structlog.get_logger().info("hello", token="abc", error="401 for Bearer abc.def", gang="a/token-ring")
    line = json.loads(logs.getvalue())
    assert (line["event"], line["level"], line["token"], line["gang"]) == ("hello", "info", REDACTED, "a/token-ring")
    assert "abc" not in line["error"]
    key = redact_secrets(None, "", {"event": "-----BEGIN RSA PRIVATE KEY-----\nabc"})
    assert key == {"event": REDACTED}


# --- The clock ------------------------------------------------------------------------------------------------------------------


def test_a_wall_clock_that_jumps_a_day_ahead_and_back_neither_ends_a_wait_nor_puts_it_off() -> None:
    wall, elapsed = [1000.0], [7.0]
    clock = MonotonicClock(lambda: wall[0], lambda: elapsed[0])
    times = []
    for jump_s in (0.0, 86_400.0, -86_400.0, -3600.0):
        wall[0] += jump_s + 3.0
        elapsed[0] += 3.0
        times.append(clock())
    assert times == [1003.0, 1006.0, 1009.0, 1012.0]


# --- The decision log -----------------------------------------------------------------------------------------------------------


def pod(number: int, *, version: int = 1, node: str | None = None) -> Pod:
    return Pod(f"uid-{number}", "a", f"p-{number}", PodSignature(), version=version, node=node)


def test_a_new_file_is_not_begun_while_something_is_under_way(tmp_path: Path) -> None:
    log = RotatingDecisionLog(tmp_path / "log", max_bytes=100, files=2)
    log.begin("actions: [allocate]\n")
    log.events([Upsert(Node("n1")), Upsert(pod(1)), Upsert(pod(2))])
    log.outcome(Outcome(1, 10.0, (bind(1), bind(2))))
    log.outcome(Outcome(2, 11.0))
    log.outcome(Outcome(3, 12.0, verdicts=(("a/g", Verdict(ok=False, why="x" * 2000)),)))
    assert not log.is_full()
    log.events([Upsert(pod(1, version=2, node="n1")), Delete("Pod", "uid-2")])
    assert log.is_full()
    assert log.facts == [Upsert(Node("n1")), Upsert(pod(1, version=2, node="n1"))]

    log.begin("actions: [allocate]\n")
    assert not log.is_full()
    assert log.facts == []
    log.close()
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["log", "log.1"]
    (_, first, _), *_ = read_decision_log((tmp_path / "log.1").read_bytes().splitlines(keepends=True))
    assert first == LogHeader("actions: [allocate]\n")


def test_an_effect_that_is_never_observed_does_not_delay_the_log_for_ever(tmp_path: Path) -> None:
    log = RotatingDecisionLog(tmp_path / "log", max_bytes=100)
    log.begin("")
    log.events([Upsert(pod(1))])
    log.outcome(Outcome(1, 10.0, (bind(1),)))
    for cycle in range(2, 20):
        log.outcome(Outcome(cycle, 20.0))
    assert not log.is_full()
    log.outcome(Outcome(20, 71.0))
    assert log.is_full()
    log.close()


def test_a_file_that_is_moved_away_is_followed_by_a_new_one(tmp_path: Path) -> None:
    log = RotatingDecisionLog(tmp_path / "log")
    log.begin("actions: [allocate]\n")
    log.events([Upsert(Node("n1"))])
    log.outcome(Outcome(1, 10.0))
    assert not log.is_full()
    (tmp_path / "log").rename(tmp_path / "log-20260101")
    assert log.is_full()
    log.begin("actions: [allocate]\n")
    log.outcome(Outcome(2, 11.0))
    assert not log.is_full()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["log", "log-20260101"]
    log.close()


def test_only_so_many_files_are_kept(tmp_path: Path) -> None:
    log = RotatingDecisionLog(tmp_path / "log", files=3)
    for number in range(6):
        log.begin(f"# {number}\n")
    log.close()
    kept = {file.name: json.loads(file.read_bytes())["policy"] for file in tmp_path.iterdir()}
    assert kept == {"log": "# 5\n", "log.1": "# 4\n", "log.2": "# 3\n"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_ends_the_log_and_nothing_else(tmp_path: Path) -> None:
    os.symlink("/dev/full", tmp_path / "log")
    log = RotatingDecisionLog(tmp_path / "log")
    log.begin("")
    log.events([Upsert(pod(1))])
    log.outcome(Outcome(1, 0.0))
    assert not log.is_full()
    log.events([Upsert(pod(2))])
    assert len(log.facts) == 2
    log.close()
