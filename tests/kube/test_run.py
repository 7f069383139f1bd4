"""`muster run` as a process, against a real API server."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import muster, process
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.kube.scheduler_process import RunProcess, eventually
from tests.kube.small_live_cluster import MERGE, FixtureCluster

from muster.decision_log import FORMAT
from muster.engine.explain import WAITING_FOR_PODS

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/muster"
QUICK_LEASE = ("--lease-duration", "4", "--renew-deadline", "3", "--retry-period", "0.5")
LONG_LEASE = ("--lease-duration", "600", "--renew-deadline", "3", "--retry-period", "0.5")


@pytest.fixture
def cluster(servers: Servers) -> Iterator[FixtureCluster]:
    with servers.api() as api:
        yield FixtureCluster(api)


# --- Scheduling -------------------------------------------------------------------------------------------------------------------


def test_a_gang_is_bound_and_the_process_ends_when_asked(cluster: FixtureCluster, kubeconfig: Path) -> None:
    cluster.nodes("n1", "n2")
    with RunProcess(kubeconfig) as muster_run:
        muster_run.wait_until_ready()
        cluster.gang("train", pods=4)
        eventually(lambda: len(cluster.placed()) == 4)
        bound = muster_run.wait_for_log("bind")
        assert (bound["gang"], bound["pods"]) == ("default/train", 4)

        assert muster_run.get("/healthz") == (200, "ok\n")
        assert muster_run.get("/readyz") == (200, "leading\n")
        eventually(lambda: muster_run.metric('muster_binds_total{result="ok"}') == 4)
        assert muster_run.metric('muster_decisions_total{effect="bind"}') == 4
        assert muster_run.metric("muster_leader") == 1
        assert muster_run.metric('muster_api_request_duration_seconds_count{verb="POST",resource="pods/binding",status="201"}') == 4

        assert muster_run.stop() == 0
        assert muster_run.log_events("ended")


def test_what_is_there_at_the_start_is_scheduled_and_pods_are_preempted_for_the_important(
    cluster: FixtureCluster, kubeconfig: Path
) -> None:
    cluster.nodes("n1", "n2")
    cluster.priority("high", 1000)
    cluster.gang("low", pods=4)
    with RunProcess(kubeconfig) as muster_run:
        eventually(lambda: len(cluster.placed()) == 4)
        cluster.gang("high", pods=2, cpu="4", priorityClassName="high")
        eventually(lambda: {"high-0", "high-1"} <= cluster.placed().keys())
        evicted = muster_run.wait_for_log("evict")
        assert (evicted["gang"], evicted["for_gang"], evicted["pods"]) == ("default/low", "default/high", 4)
        assert {cluster.get(f"low-{number}") is None for number in range(4)} == {True}
        assert muster_run.metric("muster_evictions_total") == 4
        assert muster_run.metric('muster_reservations_total{result="bound"}') == 2
        eventually(lambda: {"Preempting", "Scheduled"} <= {event["reason"] for event in cluster.events()})
        assert muster_run.stop() == 0


def test_a_gang_that_is_refused_is_reported_once_and_shows_in_the_metrics(cluster: FixtureCluster, kubeconfig: Path) -> None:
    cluster.nodes("n1")
    with RunProcess(kubeconfig) as muster_run:
        muster_run.wait_until_ready()
        cluster.gang("big", pods=4)
        # Its members may come to be known one after the other: until then it gathers.
        eventually(lambda: any(line["code"] != WAITING_FOR_PODS for line in muster_run.log_events("waiting")))
        *_, refused = logged = muster_run.log_events("waiting")
        assert refused["gang"] == "default/big"
        # A pod that uses nothing causes another cycle, and no other verdict.
        cluster.pod("small", cpu="0", schedulerName="other")
        cluster.pod("single", cpu="1")
        muster_run.wait_for_log("bind")
        eventually(lambda: muster_run.metric("muster_pending_pods") == 4)
        assert muster_run.metric(f'muster_pending_gangs{{code="{refused["code"]}"}}') == 1
        assert muster_run.log_events("waiting") == logged


def test_an_idle_scheduler_runs_no_cycles(cluster: FixtureCluster, kubeconfig: Path) -> None:
    cluster.nodes("n1")
    with RunProcess(kubeconfig) as muster_run:
        muster_run.wait_until_ready()
        cluster.pod("a")
        eventually(lambda: cluster.placed())
        before = eventually(lambda: _settled(muster_run))
        # The loop iterates all the same.
        age_s = muster_run.metric("muster_last_iteration_age_seconds")
        eventually(lambda: muster_run.metric("muster_last_iteration_age_seconds") < age_s)
        assert muster_run.metric("muster_cycles_total") == before


def _settled(muster_run: RunProcess) -> float:
    """The number of cycles, once the loop has waited for two seconds and longer."""
    return muster_run.metric("muster_cycles_total") if muster_run.metric("muster_last_iteration_age_seconds") > 2 else 0.0


# --- One leader -------------------------------------------------------------------------------------------------------------------


def test_a_standby_takes_over_when_the_leader_is_killed_and_at_once_when_it_goes(cluster: FixtureCluster, kubeconfig: Path) -> None:
    cluster.nodes("n1", "n2")
    with RunProcess(kubeconfig, *QUICK_LEASE, election=True) as first:
        first.wait_until_ready()
        with RunProcess(kubeconfig, *QUICK_LEASE, election=True) as second:
            assert second.get("/readyz") == (200, "standby: another replica holds the lease\n")
            assert second.metric("muster_leader") == 0
            first.kill()
            second.wait_until_ready()
            cluster.pod("a")
            eventually(lambda: cluster.placed())
            with RunProcess(kubeconfig, *LONG_LEASE, election=True) as third:
                third.wait_for_log("serving")
                assert second.stop() == 0
                assert cluster.api.request("GET", LEASE)["spec"].get("holderIdentity") in (None, "", _identity(third))
                # It would wait for ten minutes if it had not been told.
                third.wait_for_log("ready")


def _identity(running: RunProcess) -> str:
    return next((str(line["identity"]) for line in running.log_events("lease acquired")), "")


def test_a_scheduler_that_loses_its_lease_ends_with_a_code_of_its_own(cluster: FixtureCluster, kubeconfig: Path) -> None:
    with RunProcess(kubeconfig, *QUICK_LEASE, election=True) as muster_run:
        muster_run.wait_until_ready()
        cluster.api.request("PATCH", LEASE, body={"spec": {"holderIdentity": "somebody"}}, content_type=MERGE)
        assert muster_run.exit_code(timeout_s=60) == 3
        assert "somebody" in muster_run.log_events("stopping")[0]["why"]
        assert cluster.api.request("GET", LEASE)["spec"]["holderIdentity"] == "somebody"


def test_a_standby_can_be_asked_to_stop(kubeconfig: Path) -> None:
    with RunProcess(kubeconfig, *QUICK_LEASE, election=True) as first:
        first.wait_until_ready()
        with RunProcess(kubeconfig, *QUICK_LEASE, election=True) as second:
            second.wait_for_log("serving")
            assert second.stop() == 0
        assert first.get("/readyz")[1] == "leading\n"


# --- The decision log -------------------------------------------------------------------------------------------------------------


def test_the_decision_log_of_a_live_run_can_be_run_again(cluster: FixtureCluster, kubeconfig: Path, tmp_path: Path) -> None:
    cluster.nodes("n1", "n2")
    cluster.priority("high", 1000)
    cluster.gang("low", pods=4)
    log = tmp_path / "logs" / "muster.jsonl"
    with RunProcess(kubeconfig, "--decision-log", log) as muster_run:
        eventually(lambda: len(cluster.placed()) == 4)
        cluster.gang("high", pods=2, cpu="4", priorityClassName="high")
        eventually(lambda: {"high-0", "high-1"} <= cluster.placed().keys())
        assert muster_run.stop() == 0
    again = muster("replay", log, "--json")
    assert again.code == 0, again.out
    assert again.document["ok"]
    assert again.document["cycles"] > 2


def test_every_file_of_a_log_that_was_rotated_can_be_run_again_by_itself(
    cluster: FixtureCluster, kubeconfig: Path, tmp_path: Path
) -> None:
    cluster.nodes("n1", "n2", cpu="40")
    log = tmp_path / "muster.jsonl"
    older = tmp_path / "muster.jsonl.1"
    labels = {f"{number:060d}": "x" * 63 for number in range(100)}
    with RunProcess(kubeconfig, "--decision-log", log, "--log-size", "1", "--log-files", "3") as muster_run:
        muster_run.wait_until_ready()
        cluster.gang("first", pods=4, cpu="1")
        for number in range(60):
            cluster.pod(f"bulk-{number}", cpu="0", labels=labels)
        eventually(older.exists)
        # The new memory knows what the old one did.
        cluster.gang("second", pods=4, cpu="1")
        eventually(lambda: len([name for name in cluster.placed() if name.startswith("second")]) == 4)
        assert muster_run.stop() == 0
    for file in (log, older):
        again = muster("replay", file, "--json")
        assert again.code == 0, again.out
        assert again.document["cycles"]
        first = json.loads(file.read_bytes().splitlines()[0])
        assert first["muster"] == FORMAT


# --- What is wrong ----------------------------------------------------------------------------------------------------------------


def test_a_cycle_that_fails_ends_the_process_with_a_traceback_in_the_log(
    cluster: FixtureCluster, kubeconfig: Path, tmp_path: Path
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
    cluster.nodes("n1")
    with RunProcess(kubeconfig, "--policy", policy) as muster_run:
        muster_run.wait_until_ready()
        cluster.pod("a")
        cluster.pod("b")
        assert muster_run.exit_code() == 70
        failed = muster_run.log_events("a cycle failed")[0]
        assert "ZeroDivisionError: on purpose" in failed["exception"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--kubeconfig", "nowhere.yaml"), "no kubeconfig at nowhere.yaml"),
        (("--bind-address", "here"), "write for example 127.0.0.1:10259"),
        (("--log-format", "jsn"), "Did you mean 'json'?"),
        (("--renew-deadline", "20"), "duration 15 s > renew deadline 20 s"),
        (("--policy", "nowhere.yaml"), "no such file"),
        (("--decision-log", "/proc/nowhere/log"), "the decision log cannot be written"),
    ],
)
def test_bad_arguments_are_reported_before_anything_starts(options: tuple[str, ...], message: str) -> None:
    ran = muster("run", *options)
    assert ran.code == 2
    assert message in ran.err


def test_an_address_in_use_is_reported(kubeconfig: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = process("run", "--kubeconfig", kubeconfig, "--bind-address", address)
    assert ran.code == 2
    assert f"--bind-address: cannot listen on {address}" in ran.err
