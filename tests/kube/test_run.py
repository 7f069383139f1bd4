"""`muster run` as a process, against a real API server."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import muster, process
from tests.kube.running import Running, eventually
from tests.kube.village import MERGE, Village

from muster.lab.servers import Servers

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/muster"
QUICK_LEASE = ("--lease-duration", "4", "--renew-deadline", "3", "--retry-period", "0.5")


@pytest.fixture
def village(servers: Servers) -> Iterator[Village]:
    with servers.door() as door:
        yield Village(door)


# --- Scheduling ---------------------------------------------------------------------------------------------------------------


def test_a_gang_is_bound_and_the_process_ends_when_asked(village: Village, kubeconfig: Path) -> None:
    village.nodes("n1", "n2")
    with Running(kubeconfig) as muster_run:
        muster_run.until_ready()
        village.gang("train", pods=4)
        eventually(lambda: len(village.placed()) == 4)
        bound = muster_run.until_said("bind")
        assert (bound["gang"], bound["pods"]) == ("default/train", 4)

        assert muster_run.get("/healthz") == (200, "ok\n")
        assert muster_run.get("/readyz") == (200, "leading\n")
        eventually(lambda: muster_run.figure('muster_binds_total{result="ok"}') == 4)
        assert muster_run.figure('muster_decisions_total{effect="bind"}') == 4
        assert muster_run.figure("muster_leader") == 1
        assert muster_run.figure('muster_api_request_seconds_count{verb="POST",resource="pods/binding",status="201"}') == 4

        assert muster_run.stop() == 0
        assert muster_run.said("ended")


def test_what_is_there_at_the_start_is_scheduled_and_room_is_made_for_the_important(village: Village, kubeconfig: Path) -> None:
    village.nodes("n1", "n2")
    village.priority("high", 1000)
    village.gang("low", pods=4)
    with Running(kubeconfig) as muster_run:
        eventually(lambda: len(village.placed()) == 4)
        village.gang("high", pods=2, cpu="4", priorityClassName="high")
        eventually(lambda: {"high-0", "high-1"} <= village.placed().keys())
        evicted = muster_run.until_said("evict")
        assert (evicted["gang"], evicted["for_gang"], evicted["pods"]) == ("default/low", "default/high", 4)
        assert {village.get(f"low-{number}") is None for number in range(4)} == {True}
        assert muster_run.figure("muster_evictions_total") == 4
        assert muster_run.figure('muster_claims_total{end="redeemed"}') == 2
        eventually(lambda: {"Preempting", "Scheduled"} <= {event["reason"] for event in village.events()})
        assert muster_run.stop() == 0


def test_a_gang_that_is_refused_is_told_once_and_shows_among_the_figures(village: Village, kubeconfig: Path) -> None:
    village.nodes("n1")
    with Running(kubeconfig) as muster_run:
        muster_run.until_ready()
        village.gang("big", pods=4)
        # Its members may come to be known one after the other: until then it gathers.
        eventually(lambda: any(said["code"] != "Gathering" for said in muster_run.said("waits")))
        *_, refused = told = muster_run.said("waits")
        assert refused["gang"] == "default/big"
        # News of a pod that takes no room is another cycle, and no other verdict.
        village.pod("small", cpu="0", schedulerName="other")
        village.pod("lone", cpu="1")
        muster_run.until_said("bind")
        eventually(lambda: muster_run.figure("muster_pending_pods") == 4)
        assert muster_run.figure(f'muster_pending_gangs{{code="{refused["code"]}"}}') == 1
        assert muster_run.said("waits") == told


def test_an_idle_scheduler_runs_no_cycles(village: Village, kubeconfig: Path) -> None:
    village.nodes("n1")
    with Running(kubeconfig) as muster_run:
        muster_run.until_ready()
        village.pod("a")
        eventually(lambda: village.placed())
        before = eventually(lambda: _settled(muster_run))
        # The loop goes round all the same.
        age_s = muster_run.figure("muster_last_turn_age_seconds")
        eventually(lambda: muster_run.figure("muster_last_turn_age_seconds") < age_s)
        assert muster_run.figure("muster_cycles_total") == before


def _settled(muster_run: Running) -> float:
    """The number of cycles, once the loop has waited for two seconds and longer."""
    return muster_run.figure("muster_cycles_total") if muster_run.figure("muster_last_turn_age_seconds") > 2 else 0.0


# --- One leader ---------------------------------------------------------------------------------------------------------------


def test_a_standby_takes_over_when_the_leader_is_killed_and_at_once_when_it_goes(village: Village, kubeconfig: Path) -> None:
    village.nodes("n1", "n2")
    with Running(kubeconfig, *QUICK_LEASE, election=True) as first:
        first.until_ready()
        with Running(kubeconfig, *QUICK_LEASE, election=True) as second:
            assert second.get("/readyz") == (200, "standby: another holds the lease\n")
            assert second.figure("muster_leader") == 0
            first.kill()
            second.until_ready()
            village.pod("a")
            eventually(lambda: village.placed())
            with Running(kubeconfig, *QUICK_LEASE, election=True) as third:
                third.until_said("serving")
                assert second.stop() == 0
                assert village.door.ask("GET", LEASE)["spec"].get("holderIdentity") in (None, "", _identity(third))
                third.until_said("ready", timeout_s=4)


def _identity(running: Running) -> str:
    return next((str(line["identity"]) for line in running.said("lease acquired")), "")


def test_a_scheduler_that_loses_its_lease_ends_with_a_code_of_its_own(village: Village, kubeconfig: Path) -> None:
    with Running(kubeconfig, *QUICK_LEASE, election=True) as muster_run:
        muster_run.until_ready()
        village.door.ask("PATCH", LEASE, body={"spec": {"holderIdentity": "somebody"}}, content_type=MERGE)
        assert muster_run.ended(timeout_s=10) == 3
        assert "somebody" in muster_run.said("stopping")[0]["why"]
        assert village.door.ask("GET", LEASE)["spec"]["holderIdentity"] == "somebody"


def test_a_standby_can_be_asked_to_stop(kubeconfig: Path) -> None:
    with Running(kubeconfig, *QUICK_LEASE, election=True) as first:
        first.until_ready()
        with Running(kubeconfig, *QUICK_LEASE, election=True) as second:
            second.until_said("serving")
            assert second.stop() == 0
        assert first.get("/readyz")[1] == "leading\n"


# --- The decision log -----------------------------------------------------------------------------------------------------------


def test_the_decision_log_of_a_live_run_can_be_run_again(village: Village, kubeconfig: Path, tmp_path: Path) -> None:
    village.nodes("n1", "n2")
    village.priority("high", 1000)
    village.gang("low", pods=4)
    log = tmp_path / "logs" / "muster.jsonl"
    with Running(kubeconfig, "--decision-log", log) as muster_run:
        eventually(lambda: len(village.placed()) == 4)
        village.gang("high", pods=2, cpu="4", priorityClassName="high")
        eventually(lambda: {"high-0", "high-1"} <= village.placed().keys())
        assert muster_run.stop() == 0
    again = muster("replay", log, "--json")
    assert again.code == 0, again.out
    assert again.document["ok"]
    assert again.document["cycles"] > 2


def test_every_file_of_a_log_that_was_rotated_can_be_run_again_by_itself(
    village: Village, kubeconfig: Path, tmp_path: Path
) -> None:
    village.nodes("n1", "n2", cpu="40")
    log = tmp_path / "muster.jsonl"
    older = tmp_path / "muster.jsonl.1"
    labels = {f"{number:060d}": "x" * 63 for number in range(100)}
    with Running(kubeconfig, "--decision-log", log, "--log-size", "1", "--log-files", "3") as muster_run:
        muster_run.until_ready()
        village.gang("first", pods=4, cpu="1")
        for number in range(60):
            village.pod(f"bulk-{number}", cpu="0", labels=labels)
        eventually(older.exists)
        # The new memory knows what the old one did.
        village.gang("second", pods=4, cpu="1")
        eventually(lambda: len([name for name in village.placed() if name.startswith("second")]) == 4)
        assert muster_run.stop() == 0
    for file in (log, older):
        again = muster("replay", file, "--json")
        assert again.code == 0, again.out
        assert again.document["cycles"]
        first = json.loads(file.read_bytes().splitlines()[0])
        assert first["muster"] == 1


# --- What is wrong --------------------------------------------------------------------------------------------------------------


def test_a_cycle_that_fails_ends_the_process_with_a_traceback_in_the_log(
    village: Village, kubeconfig: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text(
        "from muster.engine.hooks import Plugin\n\n\n"
        "class Broken(Plugin):\n"
        '    """Fails."""\n\n'
        '    name = "broken"\n\n'
        "    def gang_key(self, s, gang):\n"
        "        raise ZeroDivisionError('on purpose')\n"
    )
    policy = tmp_path / "policy.yaml"
    policy.write_text("actions: [expire, allocate]\nplugins:\n- ./broken.py:Broken\n- fit\n")
    assert muster("check", policy).code == 0
    village.nodes("n1")
    with Running(kubeconfig, "--policy", policy) as muster_run:
        muster_run.until_ready()
        village.pod("a")
        village.pod("b")
        assert muster_run.ended() == 70
        failed = muster_run.said("a cycle failed")[0]
        assert "ZeroDivisionError: on purpose" in failed["exception"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--kubeconfig", "nowhere.yaml"), "no kubeconfig at nowhere.yaml"),
        (("--bind-address", "here"), "write for example 127.0.0.1:10259"),
        (("--log-format", "jsn"), "Did you mean 'json'?"),
        (("--qps", "0"), "write a number above 0"),
        (("--renew-deadline", "20"), "duration 15 s > renew deadline 20 s"),
        (("--policy", "nowhere.yaml"), "there is no such file"),
        (("--decision-log", "/proc/nowhere/log"), "the decision log cannot be written"),
    ],
)
def test_what_was_typed_wrongly_is_told_before_anything_starts(options: tuple[str, ...], said: str) -> None:
    ran = muster("run", *options)
    assert ran.code == 2
    assert said in ran.err


def test_an_address_that_is_taken_is_told(kubeconfig: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = process("run", "--kubeconfig", kubeconfig, "--bind-address", address)
    assert ran.code == 2
    assert f"--bind-address: nobody can listen on {address}" in ran.err
