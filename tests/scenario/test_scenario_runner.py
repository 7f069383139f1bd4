"""Running scenarios: what steps do, what a report says, and how a failing expectation reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scenario.inline_scenarios import FILE, parse_one, run_one
from tests.scenario.running_scenarios import run_steps

from muster.decision_log import DecisionLogWriter
from muster.model.resource_amounts import GPU
from muster.replay import replay
from muster.scenario import Report, run
from muster.scenario.run_report import CycleUpdate
from muster.yaml_positions import InputError

ONE_GANG_WAITS = """
nodes: [{name: n1, gpu: 4}]
steps:
- submit:
  - {name: first, pods: 2, requests: {gpu: 2}, runDuration: 5m}
  - {name: second, pods: 2, requests: {gpu: 2}, runDuration: 5m}
- run: {for: 7m, every: 1m}
"""


def test_a_report_has_a_row_and_a_sample_for_each_cycle() -> None:
    report = run_one(ONE_GANG_WAITS)
    assert report.ok
    assert [row.at_s for row in report.rows] == [60.0 * minute for minute in range(8)]
    assert sum(row.binds for row in report.rows) == 4
    assert report.rows[0].waiting == 1
    assert [sample.share(GPU) for sample in report.samples][:2] == [1.0, 1.0]
    assert report.virtual_s == 420.0


def test_a_report_has_a_row_for_each_gang() -> None:
    rows = {row.gang: row for row in run_one(ONE_GANG_WAITS).gangs}
    first, second = rows["default/first"], rows["default/second"]
    assert (first.stage, first.succeeded, first.waited_s) == ("finished", 2, 0.0)
    assert (second.stage, second.members, second.nodes) == ("running", 2, ("n1",))
    assert second.waited_s == pytest.approx(360.0, abs=61.0)
    assert second.why == ""


def test_a_waiting_gang_says_why_in_the_report() -> None:
    report = run_one("nodes: [{name: n1, gpu: 1}]\nsteps: [{submit: {name: g, pods: 2, requests: {gpu: 1}}}, cycle]\n")
    (row,) = report.gangs
    assert (row.stage, row.code, row.members, row.min, row.attempts) == ("waiting", "InsufficientCapacity", 0, 2, 1)
    assert "1/2 members placed" in row.why


def test_an_effect_keeps_its_cycle_and_its_time() -> None:
    report = run_one("nodes: [{name: n1}]\nsteps: [cycle, {advance: 1m}, {submit: {name: g}}, cycle]\n")
    binds = [decided for decided in report.decided_effects if type(decided.effect).__name__ == "Bind"]
    assert [(decided.cycle, decided.at_s) for decided in binds] == [(2, 60.0)]


def test_marks_show_what_happened_to_nodes_and_to_the_scheduler() -> None:
    report = run_one(
        """
        nodes: [{name: "n[1-5]"}]
        steps: [{node: {fail: "n[1-5]"}}, {advance: 90s}, restart, {node: {recover: n1}}]
        """
    )
    assert [(mark.at_s, mark.text) for mark in report.timeline_notes] == [
        (0.0, "node failed: n1, n2, n3 and 2 more"),
        (90.0, "restart"),
        (90.0, "node recovered: n1"),
    ]


def test_an_observer_sees_every_cycle_and_how_long_the_whole_takes() -> None:
    seen: list[CycleUpdate] = []

    class Watcher:
        def cycle(self, cycle_update: CycleUpdate) -> None:
            seen.append(cycle_update)

    run(parse_one(ONE_GANG_WAITS), observer=Watcher())
    assert [cycle_update.row.cycle for cycle_update in seen] == list(range(1, 9))
    assert {cycle_update.total_s for cycle_update in seen} == {420.0}


def test_the_same_scenario_gives_the_same_report() -> None:
    def without_real_time(report: Report) -> object:
        return (
            [(row.cycle, row.at_s, row.binds, row.waiting) for row in report.rows],
            report.gangs,
            report.decided_effects,
            report.samples,
        )

    first, second = run_one(ONE_GANG_WAITS), run_one(ONE_GANG_WAITS)
    assert without_real_time(first) == without_real_time(second)


def test_a_decision_log_of_a_scenario_replays_to_the_same_decisions(tmp_path: Path) -> None:
    scenario = parse_one(ONE_GANG_WAITS)
    with (tmp_path / "log").open("wb") as file:
        run(scenario, log=DecisionLogWriter(file))
    with (tmp_path / "log").open("rb") as lines:
        found = replay(lines)
    assert found.cycles == 8
    assert found.difference is None


# -- expectations that do not hold -------------------------------------------------------------------------------------------------

GIVEN = """
nodes: [{name: "n[1-2]", gpu: 2}]
queues: [{name: q}]
gangs: [{name: there, queue: q, pods: 2, requests: {gpu: 1}, runningOn: n1}]
steps:
- submit: {name: big, queue: q, pods: 4, requests: {gpu: 1}}
- cycle
- expect: {%s}
"""
DIFFERENCES = (
    ("bound: {there: 3}", "bound of there", "3", "2: default/there-0 on n1, default/there-1 on n1"),
    ("bound: {there: n2}", "bound of there", "on n2", "on n1, n1"),
    ("bound: [big]", "bound, exactly", "default/big-0, default/big-1", "but also default/there-0, default/there-1"),
    ("pending: []", "pending, exactly", "none", "but also default/big-0"),
    ("reserved: {big: 1}", "reserved of big", "1", "0"),
    ("nominated: [big/0]", "nominated, exactly", "default/big-0", "not default/big-0"),
    ("evicted: [there/0]", "evicted, exactly", "default/there-0", "not default/there-0"),
    ("released: {big: 1}", "released of big", "1", "0"),
    ("finished: {there: 2}", "finished of there", "2", "0"),
    ("bindOrder: [big, there]", "bindOrder", "big, there", "none"),
    ("nodes: {there: n2}", "nodes of there", "n2", "n1"),
    ("why: {big: 'the moon'}", "why of big", "'the moon'", "2/4 members placed"),
    ("why: {there: 'the moon'}", "why of there", "'the moon'", "not waiting"),
    ("code: {big: Fits}", "code of big", "Fits", "InsufficientCapacity"),
    ("stage: {big: running}", "stage of big", "running", "waiting"),
    ("queues: {q: {used: {gpu: 3}}}", "used gpu of queue q", "3", "2"),
    ("queues: {q: {requested: {gpu: 2}}}", "requested gpu of queue q", "2", "6"),
    ("conditions: {big: 'the moon'}", "conditions of big", "'the moon'", "2/4 members placed"),
    ("conditions: {Queue/q: 'the moon'}", "conditions of Queue/q", "'the moon'", "no condition"),
    ("attempts: {big: 7}", "attempts of big", "7", "1"),
    ("cycles: 9", "cycles", "9", "1"),
    ("writes: 0", "writes", "0", "patch"),
    ("writes: {bind: 4}", "writes of bind", "4", "0"),
)


@pytest.mark.parametrize(("expect", "what", "expected", "found"), DIFFERENCES)
def test_a_failed_expectation_says_what_was_found(expect: str, what: str, expected: str, found: str) -> None:
    report = run_one(GIVEN % expect)
    assert not report.ok
    (failure,) = report.failures
    (difference,) = failure.mismatches
    assert difference.what == what
    assert expected in difference.expected
    assert found in difference.found


def test_a_failing_expectation_reads_with_file_line_expected_and_found() -> None:
    text = run_one(GIVEN % "bound: {there: 3}, cycles: 2").explain()
    assert text.splitlines() == [
        f"{FILE}:8: after 0 s this does not hold:",
        "  bound of there (line 8)",
        "    expected  3",
        "    found     2: default/there-0 on n1, default/there-1 on n1",
        "  cycles (line 8)",
        "    expected  2",
        "    found     1",
    ]


def test_the_first_failed_expectation_ends_the_scenario() -> None:
    report = run_one("steps: [{expect: {cycles: 1}}, cycle, {expect: {cycles: 5}}]")
    assert [failure.line for failure in report.failures] == [2]
    assert report.cycles == 0


def test_stable_fails_where_something_still_happens() -> None:
    report = run_one(
        """
        nodes: [{name: n1, gpu: 1}]
        steps:
        - submit: [{name: a, requests: {gpu: 1}, runDuration: 1m}, {name: b, requests: {gpu: 1}}]
        - cycle: 3
        - expect: {stable: 3}
        - expect: {stable: {for: 5m, every: 30s}}
        """
    )
    (failure,) = report.failures
    assert failure.line == 7
    assert "Bind" in failure.mismatches[0].found


# -- steps -------------------------------------------------------------------------------------------------------------------------


def test_a_restart_keeps_nothing_of_the_scheduler() -> None:
    found = run_steps()
    found.cycle()
    before = found.world
    for step in parse_one("steps: [restart]").steps:
        found.run_step(step)
    mutable = {id(value) for value in vars(before).values() if isinstance(value, dict | list)}
    assert not mutable & {id(value) for value in vars(found.world).values()}


def test_what_no_api_server_would_accept_is_reported_with_its_line() -> None:
    with pytest.raises(InputError) as caught:
        run_one("nodes: [{name: n1}]\nsteps:\n- node: {recover: n1}\n")
    assert (caught.value.faults[0].file, caught.value.faults[0].line) == (FILE, 4)
    assert "n1 did not fail" in caught.value.faults[0].message


def test_deleting_a_gang_takes_its_pods_and_its_pod_group_for_good() -> None:
    report = run_one(
        """
        nodes: [{name: n1}]
        steps:
        - submit: {name: g, pods: 3, controller: recreate, terminationDuration: 1s}
        - run: 10s
        - delete: g
        - run: 1m
        - expect: {bound: [], pending: [], stage: {g: deleted}}
        """
    )
    assert report.ok, report.explain()


def test_a_gang_that_is_scaled_down_loses_its_last_members() -> None:
    report = run_one(
        """
        nodes: [{name: n1}]
        steps:
        - submit: {name: g, pods: 4, min: 1, terminationDuration: 1s}
        - run: 10s
        - scale: {g: 2}
        - run: 10s
        - expect: {bound: [g/0, g/1]}
        - scale: {g: 3}
        - run: 10s
        - expect: {bound: [g/0, g/1, g/2]}
        """
    )
    assert report.ok, report.explain()


def test_an_edit_is_a_merge_patch_of_any_object() -> None:
    report = run_one(
        """
        nodes: [{name: n1, labels: {disk: slow}}]
        steps:
        - submit: {name: g, nodeSelector: {disk: fast}}
        - cycle
        - expect: {bound: []}
        - patch: {object: Node/n1, merge: {metadata: {labels: {disk: fast}}}}
        - cycle
        - expect: {bound: [g]}
        """
    )
    assert report.ok, report.explain()


def test_a_failed_eviction_and_a_failed_bind_are_reported_to_the_scheduler() -> None:
    report = run_one(
        """
        nodes: [{name: n1, gpu: 1}]
        steps:
        - submit: {name: g, requests: {gpu: 1}}
        - fail: {bind: g, times: 3}
        - run: {for: 25s, every: 1s}
        - expect: {bound: [], writes: {bind: 0}}
        # The second refusal begins a pause, and the third, at its end, a longer one.
        - run: {for: 2m, every: 1s}
        - expect: {bound: [g], attempts: {g: 4}}
        """
    )
    assert report.ok, report.explain()
