"""Shadow mode on a real API server, beside somebody else who binds: not one write request, and a report that says what differs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.cli.commands import ROOT
from tests.harness.blocking_client import BlockingClient
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.kube.event_loop_thread import BackgroundLoop
from tests.kube.recording_proxy import ProxiedRequest, RecordingProxy
from tests.kube.scheduler_process import RunProcess, eventually
from tests.kube.small_live_cluster import MERGE, PODS, FixtureCluster

from muster.kube.watch.access import read_access

USER = "system:serviceaccount:muster-shadow:muster-shadow"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
OPTIONS = ("--shadow", "--as-scheduler", "other", "--shadow-period", "2s")


@contextmanager
def recorded(servers: Servers, folder: Path) -> Iterator[tuple[Path, list[tuple[str, str]]]]:
    """A kubeconfig, and each request that comes by it: its method and path."""
    seen: list[tuple[str, str]] = []

    async def note(request: ProxiedRequest) -> bool:
        seen.append((request.method, request.path))
        return True

    with BackgroundLoop() as background:
        proxy = RecordingProxy(background.run(read_access(servers.kubeconfig())))
        proxy.before = note
        opened = proxy.opened()
        background.run(opened.__aenter__())
        try:
            cluster = {"name": "proxy", "cluster": {"server": background.run(proxy.listener("shadow"))}}
            context = {"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}
            config = {
                "clusters": [cluster],
                "contexts": [context],
                "users": [{"name": "nobody", "user": {}}],
                "current-context": "proxy",
            }
            (folder / "kubeconfig").write_text(json.dumps(config))
            yield folder / "kubeconfig", seen
        finally:
            background.run(opened.__aexit__(None, None, None))


def test_a_shadow_sends_no_write_request_and_reports_what_differs(servers: Servers, tmp_path: Path) -> None:
    """A gang that another scheduler starts late, one that it starts at once, one that would evict; a node that cannot be read."""
    with servers.api() as api, recorded(servers, tmp_path) as (kubeconfig, requests):
        cluster = FixtureCluster(api)
        cluster.nodes("n1", "n2")
        cluster.priority("high", 1000)
        with RunProcess(kubeconfig, *OPTIONS, "--shadow-report", tmp_path / "report.jsonl", election=True) as run:
            run.wait_until_ready()
            notes = {"metadata": {"annotations": {"volcano.sh/node-vgpu-register": "nonsense"}}}
            api.request("PATCH", "/api/v1/nodes/n2", body=notes, content_type=MERGE)
            cluster.gang("late", pods=2, schedulerName="other")
            eventually(lambda: _hours(tmp_path, "would start").get("default/late", 0.0) * 3600 > 7)
            cluster.gang("soon", pods=2, schedulerName="other")
            for name, node in (("late", "n1"), ("soon", "n2")):
                for number in range(2):
                    _bind(api, f"{name}-{number}", node=node)
            eventually(lambda: _sum(tmp_path, "started") == 2)
            cluster.gang("urgent", pods=3, schedulerName="other", priorityClassName="high")
            eventually(lambda: "default/urgent" in _hours(tmp_path, "would evict"))
            figures = run.get("/metrics")[1]
            waiting = json.loads(run.get("/api/v1/gangs?stage=waiting")[1])["gangs"]
            assert run.stop() == 0
    assert requests
    assert {method for method, _ in requests} == {"GET"}, [each for each in requests if each[0] != "GET"]
    assert (_sum(tmp_path, "started"), _sum(tmp_path, "sooner"), _sum(tmp_path, "same")) == (2, 1, 1)
    assert _hours(tmp_path, "sooner").keys() == {"default/late"}
    assert _sum(tmp_path, "evictions") == 3
    assert 'muster_shadow_report{figure="waiting"} 1.0' in figures
    assert [row["gang"] for row in waiting] == ["default/urgent"]
    assert run.log_events("shadow report")
    assert not [line for line in run.lines if line["level"] == "error"], run.lines


def test_the_shipped_role_of_a_shadow_is_enough(servers: Servers, tmp_path: Path) -> None:
    """Nothing is asked of the server that the role does not grant, and no definition of Muster's own is needed."""
    shipped = [each for each in yaml.safe_load_all((ROOT / "deploy" / "shadow.yaml").read_text()) if "Cluster" in each["kind"]]
    with servers.api() as api:
        for each in shipped:
            api.request("POST", f"{RBAC}/{each['kind'].lower()}s", body=each)
        kubeconfig = servers.kubeconfig(USER, ("system:serviceaccounts", "system:serviceaccounts:muster-shadow"))
        cluster = FixtureCluster(api)
        cluster.nodes("n1")
        with RunProcess(kubeconfig, *OPTIONS, "--shadow-report", tmp_path / "report.jsonl", election=True) as run:
            run.wait_until_ready()
            cluster.gang("waits", pods=2, schedulerName="other")
            eventually(lambda: "default/waits" in _hours(tmp_path, "would start"))
            assert run.metric('muster_api_request_duration_seconds_count{status="403"}') == 0
            assert run.metric("muster_watch_forbidden") == 0
            assert run.stop() == 0


def _bind(api: BlockingClient, pod: str, *, node: str) -> None:
    api.request("POST", f"{PODS}/{pod}/binding", body={"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}})


def _reports(folder: Path) -> list[dict[str, Any]]:
    file = folder / "report.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _hours(folder: Path, what: str) -> dict[str, float]:
    """Of each gang that fares so, in the last report of it."""
    return {each["gang"]: each["hours"] for report in _reports(folder) for each in report["differences"] if each["what"] == what}


def _sum(folder: Path, figure: str) -> float:
    return float(sum(report[figure] for report in _reports(folder)))
