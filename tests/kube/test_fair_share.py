"""Thousands of hopeless pods of one namespace on a real API server: others' pods are bound about as fast as without them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import pytest
from tests.harness.blocking_client import BlockingClient
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.kube.scheduler_process import RunProcess
from tests.trust.hostile_pods import KINDS, NAMESPACE, waiting_pod

HOSTILE: Final = int(os.environ.get("MUSTER_HOSTILE_PODS", "2000"))
OTHERS, NODES = 25, 10
MOST_TIMES: Final = 3.0
PODS: Final = "/api/v1/namespaces/{}/pods"


@contextmanager
def scheduler_of(servers: Servers) -> Iterator[tuple[RunProcess, BlockingClient]]:
    with servers.api() as api:
        for namespace in (NAMESPACE, "team-a"):
            api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": namespace}})
        for number in range(NODES):
            room = {"cpu": "16", "memory": "64Gi", "pods": "110"}
            node = {"metadata": {"name": f"n{number}", "labels": {"kubernetes.io/hostname": f"n{number}"}}}
            api.request("POST", "/api/v1/nodes", body=node)
            api.request(
                "PATCH",
                f"/api/v1/nodes/n{number}/status",
                body={"status": {"capacity": room, "allocatable": room}},
                content_type="application/merge-patch+json",
            )
            # Without a kubelet nobody takes this off.
            api.request(
                "PATCH", f"/api/v1/nodes/n{number}", body={"spec": {"taints": None}}, content_type="application/merge-patch+json"
            )
        with RunProcess(servers.kubeconfig()) as process:
            process.wait_until_ready()
            yield process, api


def bind_times(api: BlockingClient, name: str) -> list[float]:
    """Seconds until each of some pods is bound, one after the other. Each is gone before the next one comes, so that all that wait
    may fit now."""
    found = []
    for number in range(OTHERS):
        path = f"{PODS.format('team-a')}/{name}{number}"
        api.request("POST", PODS.format("team-a"), body=waiting_pod(f"{name}{number}", cpu="1", namespace="team-a"))
        began = time.perf_counter()
        while not api.request("GET", path)["spec"].get("nodeName"):
            assert time.perf_counter() < began + 60, f"{name}{number} is not bound"
            time.sleep(0.002)
        found.append(time.perf_counter() - began)
        api.request("DELETE", f"{path}?gracePeriodSeconds=0")
    return found


def resident_mb(process: RunProcess) -> float:
    lines = Path(f"/proc/{process.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


@pytest.mark.soak
@pytest.mark.skipif("MUSTER_HOSTILE_PODS" not in os.environ, reason="it compares times: make soak")
@pytest.mark.parametrize("kind", KINDS)
def test_the_pods_of_others_are_bound_as_fast(servers: Servers, kind: str) -> None:
    with scheduler_of(servers) as (process, api):
        bind_times(api, "warm")
        alone, memory = bind_times(api, "alone"), resident_mb(process)
        for number in range(HOSTILE):
            api.request("POST", PODS.format(NAMESPACE), body=KINDS[kind](number))
        # Their first attempts, and conditions, are hers to wait for.
        bind_times(api, "settling")
        beside, grown = bind_times(api, "beside"), resident_mb(process)
    print(f"{kind}: alone {1000 * median(alone):.1f} ms, {memory:.0f} MB; beside {1000 * median(beside):.1f} ms, {grown:.0f} MB")
    assert median(beside) <= MOST_TIMES * median(alone)
    assert grown <= 1.5 * memory
