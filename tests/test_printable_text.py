"""Text from objects is shown as text, wherever it leaves the program: no name forges a line, moves a cursor or turns a sentence
around."""

import asyncio
import io
import json
import logging
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.kube.scripted_api_server import scripted_server
from tests.kube_write.watch_updates import watch_update

from muster.cli.cluster_file import read_cluster
from muster.cli.errors import UserError, fault_lines, show_user_error
from muster.cli.json_output import write_json
from muster.cli.screen import Screen, styled
from muster.cli.text_table import lay_out
from muster.config import load_policy
from muster.decision_log import DecisionLogWriter, read_decision_log
from muster.kube.read.object_references import POD, pod_ref
from muster.kube.watch.client import Client
from muster.kube.write import patch_bodies
from muster.kube.write.api_writer import ApiWriter
from muster.kube.write.event_recorder import EventRecorder, KubeEvent
from muster.kube.write.status_updates import StatusWrite, add_updates, status_writes, updates_patch
from muster.kube.write.write_cache import WriteCache
from muster.model.effects import Condition, Evict, Outcome, Verdict
from muster.model.events import Delete, Event
from muster.model.printable_text import printable, printable_json
from muster.rotating_decision_log import RotatingDecisionLog
from muster.service.log_setup import LogFormat, set_up_logging
from muster.snapshot import snapshot_file
from muster.yaml_positions import InputError, InputFault

HOSTILE = "q\x1b[2J\r\nINFO forged\u202egnp.\u2066\u2028\x85\x9b31m\x7f\x00\u200b\U000e0041é漢"
hostile_texts = st.one_of(st.just(HOSTILE), st.text(), st.text(st.characters(categories=("Cc", "Cf", "Zl", "Zp"))))


@given(st.text())
def test_what_is_shown_prints_and_text_that_prints_is_unchanged(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert (shown == text) == text.isprintable()


@given(hostile_texts)
def test_json_that_is_shown_prints_and_decodes_to_the_same_value(text: str) -> None:
    encoded = msgspec.json.encode({"name": text})
    assert printable_json(encoded).decode().isprintable()
    assert msgspec.json.decode(printable_json(encoded)) == {"name": text}


# --- Objects ------------------------------------------------------------------------------------------------------------------


@given(hostile_texts)
def test_conditions(text: str) -> None:
    pod = {"metadata": {"name": "a", "namespace": "default"}, "spec": {}, "status": {}}
    for update in (
        Condition("gang", "volcano:default/a", ok=False, code="Unschedulable", why=f"queue {text} is full"),
        Condition("gang", "volcano:default/a", ok=False, code="Invalid", why=f"queue {text} is full"),
        Condition("pod", "default/a", ok=False, code="Unschedulable", why=f"role {text} waits"),
    ):
        for status_write in status_writes(update, gang_pods=lambda _: [pod_ref("default/a")]):
            assert _messages_print(status_write, pod)
    evicted = Evict("u", pod="default/a", node="n", gang="g", for_gang="h", method="evict", why=text, cause="preempt")
    patch = patch_bodies.conditions_patch([patch_bodies.disruption_condition(evicted)], present=[], now=0.0)
    assert patch["status"]["conditions"][0]["message"].isprintable()
    assert patch_bodies.soft_eviction_patch(evicted, now=0.0)["metadata"]["annotations"].popitem()[1].isprintable()


def _messages_print(status_write: StatusWrite, present: dict[str, Any]) -> bool:
    pending: dict[Any, Any] = {}
    add_updates(pending, [status_write])
    patch = updates_patch(pending[status_write.ref], present, now=0.0)
    assert patch is not None
    return all(one["message"].isprintable() for one in patch["status"]["conditions"])


def test_events() -> None:
    async def steps() -> dict[str, Any]:
        cache = WriteCache()
        bodies: list[dict[str, Any]] = []
        cache.apply_watch(
            watch_update(POD, {"metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "1"}})
        )

        async def reply(request: web.Request) -> web.StreamResponse:
            bodies.append(json.loads(await request.read()))
            return web.json_response({})

        async def idle() -> None:
            return None

        async with scripted_server(reply) as (_, access):
            client = Client(access)
            api_writer = ApiWriter(client, cache, version_of=lambda _: "v1", may_write=lambda: True)
            recorder = EventRecorder(api_writer, cache, now=lambda: 0.0, per_second=1000)
            running = asyncio.create_task(recorder.run(until_idle=idle))
            recorder.add([KubeEvent((pod_ref("default/a"),), "FailedScheduling", f"queue {HOSTILE}")])
            while not bodies:
                await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await client.close()
        return bodies[0]

    message = asyncio.run(asyncio.wait_for(steps(), 30))["message"]
    assert message == f"queue {printable(HOSTILE)}"
    assert message.isprintable()


# --- Log ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    handlers = logging.root.handlers[:]
    yield lambda: capsys.readouterr().err.removesuffix("\n")
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers


@pytest.mark.parametrize("log_format", LogFormat)
def test_a_line_of_the_log_is_one_line(log: Callable[[], str], log_format: LogFormat) -> None:
    set_up_logging(log_format)
    structlog.get_logger().info(f"event {HOSTILE}", queue=HOSTILE, nodes=[HOSTILE], why={"role": HOSTILE})
    line = log()
    assert line.isprintable()
    if log_format is LogFormat.JSON:
        assert json.loads(line)["nodes"] == [HOSTILE]


@pytest.mark.parametrize("log_format", LogFormat)
def test_the_text_of_an_exception_forges_no_line(log: Callable[[], str], log_format: LogFormat) -> None:
    set_up_logging(log_format)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        structlog.get_logger().exception("failed")
    first, *rest = log().split("\n")
    assert all(line.isprintable() for line in (first, *rest))
    assert not any(line.startswith("INFO") for line in rest)


# --- Decision log -------------------------------------------------------------------------------------------------------------


@given(hostile_texts)
def test_lines_of_the_decision_log_print_and_read_back(text: str) -> None:
    file = io.BytesIO()
    event: Event = Delete("Pod", text)
    outcome = Outcome(1, 0.0, (), ((text, Verdict(ok=False, why=text, code="Full")),), ())
    writer = DecisionLogWriter(file)
    writer.begin(text)
    writer.events([event])
    writer.outcome(outcome)
    lines = file.getvalue().decode().split("\n")
    assert all(line.isprintable() for line in lines)
    assert len(lines) == 4
    read = [entry for _, entry, _ in read_decision_log(io.BytesIO(file.getvalue()))]
    assert read[1:] == [event, outcome]


# --- Commands -----------------------------------------------------------------------------------------------------------------


def shown_on(lines: list[Any], *, width: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", width)
    file = io.StringIO()
    Screen(file).print_lines(lines)
    return file.getvalue()


@pytest.mark.parametrize("width", ["60", "400"])
def test_tables(width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = lay_out(("gang", "queue", "why"), [(HOSTILE, (HOSTILE, "red"), f"[bold]{HOSTILE}")], width=int(width))
    text = shown_on([*lines, styled(HOSTILE, (HOSTILE, "dim"))], width=width, monkeypatch=monkeypatch)
    assert all(line.isprintable() for line in text.split("\n"))
    assert "INFO forged" not in {line.strip() for line in text.split("\n")}


@given(hostile_texts)
def test_faults_are_shown_below_a_line_that_prints(text: str) -> None:
    fault = InputFault(f"unknown plugin {text}", text or "x", 1, 3, 4, suggestion=text)
    first, *rest = fault.render(f"ab{text}").split("\n")
    assert first.isprintable()
    assert all(line.isprintable() for line in rest)
    assert not rest or re.fullmatch(r" +\| +\^+", rest[-1])


def test_the_caret_is_below_its_text_beside_tabs_and_escapes() -> None:
    below = InputFault("wrong", "f", 1, 4, 2).render("\t\x07:no").split("\n")[1:]
    assert below == ["   1 |     \\x07:no", "     |          ^^"]


def test_errors_of_check(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text('"plug\\e[2J\\u202eins": []\nactions: ["a\\nb", \u202e]\n', encoding="utf-8")
    with pytest.raises(InputError) as found:
        load_policy(file)
    lines = [line.plain for fault in found.value.faults for line in fault_lines(fault)]
    assert len(lines) > 4
    assert all(line.isprintable() for line in lines)


def test_errors_without_a_position_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    show_user_error(UserError(HOSTILE.replace("\n", "")))
    write_json("check", ok=False, errors=[HOSTILE])
    shown = capsys.readouterr()
    assert all(line.isprintable() for line in (shown.out + shown.err).split("\n"))
    assert json.loads(shown.out)["errors"] == [HOSTILE]


# --- Files --------------------------------------------------------------------------------------------------------------------


def test_decision_logs_and_snapshots_are_for_their_owner_alone(tmp_path: Path) -> None:
    decisions = RotatingDecisionLog(tmp_path / "decisions.jsonl")
    for _ in range(2):
        decisions.begin("policy")
        decisions.close()
    snapshot_file.write(tmp_path / "cluster.json", [], now=0.0)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["cluster.json", "decisions.jsonl", "decisions.jsonl.1"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert read_cluster(tmp_path / "cluster.json") is not None
