"""Snapshots: the same decisions without what they do not depend on, and under other names; and one of a real cluster."""

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import ROOT, muster
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.kube.small_live_cluster import FixtureCluster

from muster.model.effects import Bind, Evict, Nominate, Reserve
from muster.scenario import Scenario, load
from muster.scenario.scenario_runner import ScenarioRunner
from muster.scenario.syntax_tree import SourceManifest
from muster.sim.api_kinds import KINDS
from muster.snapshot.anonymize import anonymize
from muster.snapshot.strip import strip_object

SCENARIOS = sorted((ROOT / "scenarios").glob("*/*.yaml"))
Placements = list[tuple[str, str, str]]


def started_play(scenario: Scenario) -> ScenarioRunner:
    play = ScenarioRunner(replace(scenario, faults=Scenario("", "", 1).faults))
    play.set_up()
    return play


def slim_objects(play: ScenarioRunner) -> list[dict[str, Any]]:
    """All objects as the scheduler would find them, slimmed down."""
    return [
        strip_object(each, kind=kind)
        for kind in KINDS
        if kind[1] != "Lease"
        for each in play.cluster.listed(".".join(filter(None, kind[::-1])))
    ]


def placements_of(play: ScenarioRunner) -> Placements:
    play.cycle()
    effects = [decided.effect for decided in play.decided_effects]
    return [(type(one).__name__, one.pod, one.node) for one in effects if isinstance(one, Bind | Reserve | Nominate | Evict)]


def decide_on(scenario: Scenario, objects: list[dict[str, Any]]) -> ScenarioRunner:
    """The same policy on these objects, and nothing else."""
    bare = Scenario(
        scenario.name, scenario.file, scenario.line, scenario.policy, objects=tuple(SourceManifest(each, 1) for each in objects)
    )
    return started_play(bare)


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda path: path.stem)
def test_a_slim_cluster_and_one_under_other_names_are_decided_about_as_the_whole_one(file: Path) -> None:
    scenario = load(file)[0]
    whole = started_play(scenario)
    objects = slim_objects(whole)
    expected = placements_of(whole)
    assert sorted(placements_of(decide_on(scenario, objects))) == sorted(expected)
    if scenario.policy is None:
        # Names that a policy knows would have to be replaced in it, too.
        renamed = placements_of(decide_on(scenario, anonymize(objects)))
        assert Counter(what for what, _, _ in renamed) == Counter(what for what, _, _ in expected)


def test_no_name_and_no_value_of_a_user_is_left_in_an_anonymous_snapshot() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "acme-train-0",
            "namespace": "acme",
            "labels": {"acme.com/team": "rockets", "app": "launcher", "pod-group.scheduling.sigs.k8s.io": "moonshot"},
            "annotations": {
                "scheduling.k8s.io/group-name": "moonshot",
                "gang.scheduling.koordinator.sh/groups": '["acme/moonshot", "acme/apollo"]',
                "kubectl.kubernetes.io/last-applied-configuration": '{"env": "hunter2"}',
                "acme.com/owner": "somebody",
            },
        },
        "spec": {
            "nodeName": "acme-node-7",
            "priorityClassName": "acme-high",
            "serviceAccountName": "acme-robot",
            "imagePullSecrets": [{"name": "acme-registry"}],
            "nodeSelector": {"acme.com/rack": "launchpad"},
            "containers": [
                {
                    "name": "rocketeer",
                    "image": "registry.acme/rocket",
                    "env": [{"name": "PASSWORD", "value": "hunter2"}],
                    "args": ["--acme"],
                }
            ],
            "volumes": [
                {"name": "fuel", "ephemeral": {"volumeClaimTemplate": {}}},
                {"name": "s", "secret": {"secretName": "acme-key"}},
            ],
        },
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "acme-node-7", "labels": {"acme.com/rack": "launchpad"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "acme-train-0-fuel", "namespace": "acme"}}
    hyper = {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": "acme-rack"},
        "spec": {"tier": 1, "members": [{"type": "Node", "selector": {"regexMatch": {"pattern": "acme-node-.*"}}}]},
    }
    kinds = (("", "Pod"), ("", "Node"), ("", "PersistentVolumeClaim"), ("topology.volcano.sh", "HyperNode"))
    objects = [strip_object(each, kind=kind) for each, kind in zip((pod, node, claim, hyper), kinds, strict=True)]
    told = json.dumps(anonymize(objects))
    for word in ("acme", "rocket", "launch", "moonshot", "apollo", "hunter2", "somebody", "PASSWORD", "fuel"):
        assert word not in told

    hidden, its_node, its_claim, domain = anonymize(objects)
    assert (
        hidden["spec"]["nodeName"] == its_node["metadata"]["name"] == domain["spec"]["members"][0]["selector"]["exactMatch"]["name"]
    )
    assert hidden["spec"]["nodeSelector"] == its_node["metadata"]["labels"]
    assert hidden["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == its_claim["metadata"]["name"]
    group = hidden["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
    assert hidden["metadata"]["labels"]["pod-group.scheduling.sigs.k8s.io"] == group
    assert json.loads(hidden["metadata"]["annotations"]["gang.scheduling.koordinator.sh/groups"])[0].endswith(f"/{group}")


def test_a_name_pattern_becomes_the_names_in_which_the_scheduler_finds_it() -> None:
    def hypernode(pattern: str) -> dict[str, Any]:
        members = [{"type": "Node", "selector": {"regexMatch": {"pattern": pattern}}}]
        return {
            "apiVersion": "topology.volcano.sh/v1alpha1",
            "kind": "HyperNode",
            "metadata": {"name": "h"},
            "spec": {"members": members},
        }

    nodes: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in ("gpu-1", "gpu-2", "x-gpu-3")
    ]
    for pattern, expected in (
        ("gpu", {"gpu-1", "gpu-2", "x-gpu-3"}),
        ("^gpu-1", {"gpu-1"}),
        ("gpu-[12]$", {"gpu-1", "gpu-2"}),
        ("(", set()),
    ):
        domain, *renamed = anonymize([hypernode(pattern), *nodes])
        alias = {each["metadata"]["name"]: node["metadata"]["name"] for each, node in zip(renamed, nodes, strict=True)}
        assert {alias[member["selector"]["exactMatch"]["name"]] for member in domain["spec"]["members"]} == expected


def test_a_snapshot_of_a_real_cluster_can_be_planned_on_and_simulated(servers: Servers, kubeconfig: Path, tmp_path: Path) -> None:
    with servers.api() as api:
        fixture_cluster = FixtureCluster(api)
        fixture_cluster.nodes("n1", "n2")
        fixture_cluster.priority("high", 1000)
        for number in range(4):
            fixture_cluster.pod(f"old-{number}", nodeName=f"n{number % 2 + 1}")
        fixture_cluster.gang("waits", pods=2)
        api.request("POST", "/api/v1/namespaces/default/secrets", body={"metadata": {"name": "s"}, "stringData": {"k": "hunter2"}})
    job = tmp_path / "job.yaml"
    job.write_text("{name: train, pods: 2, requests: {cpu: 4}, priority: 2000}\n")
    for number, options in enumerate(((), ("--anonymous",))):
        saved = tmp_path / f"cluster-{number}.json.gz"
        ran = muster("snapshot", "-o", saved, "--kubeconfig", kubeconfig, *options)
        assert ran.code == 0, ran.err
        assert "2 nodes, 6 pods" in ran.out
        text = gzip.decompress(saved.read_bytes()).decode()
        assert "hunter2" not in text
        assert ("old-0" in text) is not bool(options)

        planned = muster("plan", job, "--cluster", saved, "--json")
        assert planned.code == 2, planned.out + planned.err
        assert len(planned.document["gangs"][0]["evictedGangs"]) == 4
        # Real pods lose what they did since they started, which was a moment ago.
        assert all(0 <= loss["hours"] < 1 for loss in planned.document["gangs"][0]["evictedGangs"])

        simulated = muster("sim", saved, "--json")
        assert simulated.code == 0, simulated.out + simulated.err
        (scenario,) = simulated.document["scenarios"]
        assert scenario["totals"]["gangs"] == 5
        assert not scenario["violations"]


def test_a_file_that_is_no_snapshot_is_reported(tmp_path: Path, kubeconfig: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("[1, 2]")
    ran = muster("sim", other)
    assert ran.code == 2
    assert "as `muster snapshot` writes it" in ran.err
    ran = muster("snapshot", "-o", tmp_path / "no" / "where.json", "--kubeconfig", kubeconfig)
    assert ran.code == 2
    assert "where.json" in ran.err
