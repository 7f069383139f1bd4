"""Questions about a real cluster: by its context, in every form of the output, and by who may read only a part of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from tests.cli.commands import CommandResult, muster
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.kube.small_live_cluster import FixtureCluster


def contexts(servers: Servers, folder: Path) -> Path:
    """Of who may do everything, of who may do nothing, and of a server that is gone; none is the current one."""
    found: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "clusters": [], "contexts": [], "users": []}
    for name, path in (("all", servers.kubeconfig()), ("nothing", servers.kubeconfig("stranger", ("strangers",)))):
        given = yaml.safe_load(path.read_text())
        found["clusters"].append({**given["clusters"][0], "name": name})
        found["users"].append({**given["users"][0], "name": name})
        found["contexts"].append({"name": name, "context": {"cluster": name, "user": name}})
    found["clusters"].append({"name": "gone", "cluster": {"server": "https://127.0.0.1:1"}})
    found["contexts"].append({"name": "gone", "context": {"cluster": "gone", "user": "all"}})
    (folder / "kubeconfig").write_text(json.dumps(found))
    return folder / "kubeconfig"


class Asked:
    """The commands of a person whose kubeconfig has several contexts."""

    def __init__(self, servers: Servers, folder: Path) -> None:
        self.folder, self.kubeconfig = folder, contexts(servers, folder)
        with servers.api() as api:
            cluster = FixtureCluster(api)
            cluster.nodes("n1", "n2")
            for number in range(2):
                cluster.pod(f"old-{number}", nodeName=f"n{number + 1}")
            cluster.gang("waits", pods=5)
            cluster.gang("theirs", pods=2, schedulerName="volcano")

    def __call__(self, *arguments: str, context: str = "all") -> CommandResult:
        chosen = ("--context", context) if context else ()
        return muster(*arguments, *chosen, cwd=self.folder, KUBECONFIG=str(self.kubeconfig), COLUMNS="80")


def test_a_real_cluster_is_asked_by_its_context_in_every_form(servers: Servers, tmp_path: Path) -> None:
    ask = Asked(servers, tmp_path)
    told = ask("why", "waits")
    assert told.code == 0, told.err
    assert told.out.startswith("default/waits is waiting for ")
    assert " starts   not even when all that runs has ended\n" in told.out
    assert "there were 2 more nodes like n1" in told.out
    wide = [line.split() for line in ask("gangs", "-o", "wide").out.splitlines()[1:4]]
    assert [line[0] for line in wide] == ["default/waits", "default/old-0", "default/old-1"]
    assert [line[5] for line in wide[1:]] == ["n1", "n2"]
    assert [line.split()[0] for line in ask("nodes", "-o", "wide").out.splitlines()[1:3]] == ["n1", "n2"]
    assert ask("queues", "-o", "json").document["queues"][0]["waiting"] == 1
    assert " no gangs\n" in ask("gangs", "-n", "kube-system").out
    (tmp_path / "job.yaml").write_text("{name: train, pods: 2, requests: {cpu: 1}}\n")
    planned = ask("plan", "job.yaml", "-o", "yaml")
    assert (planned.code, yaml.safe_load(planned.out)["gangs"][0]["code"]) == (0, 0)
    for each in (told, ask("plan", "job.yaml"), ask("queues")):
        assert max(map(len, each.out.splitlines())) <= 80


def test_a_real_cluster_is_looked_at_through_another_scheduler(servers: Servers, tmp_path: Path) -> None:
    ask = Asked(servers, tmp_path)
    told = ask("why", "theirs")
    assert (told.code, told.out) == (64, "")
    assert "theirs is served by the scheduler volcano (2 pods): --as-scheduler volcano looks through it" in told.err
    assert "default/theirs can run now." in ask("why", "theirs", "--as-scheduler", "volcano").out
    assert "no pod of this cluster names the scheduler vulcano" in ask("gangs", "--as-scheduler", "vulcano").out


def test_a_context_that_cannot_be_asked_is_told_in_a_sentence(servers: Servers, tmp_path: Path) -> None:
    ask = Asked(servers, tmp_path)
    for context, sentence in (
        ("nothing", "the cluster cannot be read: 403 Forbidden: nodes is forbidden"),
        ("gone", "the cluster cannot be read: no response: Cannot connect to host 127.0.0.1:1"),
        ("nope", "there is no context 'nope'; its contexts are all, gone, nothing"),
        ("", "it names no current context: choose one with --context; its contexts are all, gone, nothing"),
    ):
        told = ask("gangs", context=context)
        assert (told.code, told.out) == (64, "")
        assert sentence in told.err
