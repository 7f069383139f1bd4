"""Whatever users write into a real cluster, and its API server takes, the scheduler goes on with all the others and says what is
wrong where it is wrong.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.harness.live_harness import LiveHarness
from tests.harness.scheduling_turn import step
from tests.kube.live_backend import install_kinds
from tests.kube.schemaless_crds import install

from muster.config import default_policy
from muster.kube.read import names
from muster.kube.watch.access import read_access
from muster.kube.watch.client import ApiError
from muster.lab.assets import Assets
from muster.scheduler import Scheduler

Manifest = dict[str, Any]
GANG = "gang.scheduling.koordinator.sh"
VALID = "muster.dev/Valid"
LARGEST = 250 * 1024
"""The server takes 256 KiB of annotations on one object, names and all."""
ODD = "\u202ea\u0000\u200b\ufeff\U0001f9e8\u0301é\n\t\"'<script>${x}%s{0}"


@pytest.fixture(scope="module")
def servers_with_kinds(assets: Assets) -> Iterator[Servers]:
    """Of a cluster whose custom kinds came without schemas, as some operators install them: it takes anything."""
    with Servers(assets) as running:
        install_kinds(running, group=names.MUSTER_GROUP)
        install(running)
        yield running


class FixtureCluster:
    """A cluster with a little room and a scheduler."""

    def __init__(self, cluster: LiveHarness) -> None:
        self.cluster = cluster
        self._scheduler: Scheduler | None = None
        for name in ("n1", "n2"):
            allocatable = {"cpu": "16", "memory": "16Gi", "pods": "20"}
            cluster.apply(
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": name},
                    "status": {"capacity": allocatable, "allocatable": allocatable},
                }
            )

    def cycle(self, times: int = 2) -> None:
        if self._scheduler is None:
            self._scheduler = Scheduler(default_policy())
            self._scheduler.feed(self.cluster.relist())
        for _ in range(times):
            step(self._scheduler, self.cluster, self.cluster.now)

    def condition(self, kind: str, name: str, type_: str) -> str:
        found = self.cluster.get(kind, "default", name)
        assert found is not None
        conditions = (found.get("status") or {}).get("conditions") or []
        return next((f"{one['status']} {one['reason']}: {one['message']}" for one in conditions if one["type"] == type_), "")

    def node_of(self, name: str) -> str:
        found = self.cluster.get("Pod", "default", name)
        assert found is not None
        return str(found["spec"].get("nodeName", ""))

    def annotations_of(self, name: str) -> Manifest:
        found = self.cluster.get("Pod", "default", name)
        assert found is not None
        return found["metadata"].get("annotations") or {}

    def expect_others_to_be_scheduled(self) -> None:
        """Before and after, in one cycle and in the next: one who only wants to work gets a node."""
        for name in ("first", "second"):
            self.cluster.create_raw(pod(name))
            self.cycle()
            assert self.node_of(name), f"{name} waits: {self.condition('Pod', name, 'PodScheduled')}"


@contextmanager
def fixture_cluster(servers: Servers) -> Iterator[FixtureCluster]:
    with LiveHarness(partial(read_access, servers.kubeconfig())) as cluster:
        yield FixtureCluster(cluster)


def pod(name: str, notes: Mapping[str, str] | None = None, *, containers: list[Manifest] | None = None) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": dict(notes or {})},
        "spec": {"schedulerName": "muster", "containers": containers or [container("main", cpu="1")]},
    }


def container(name: str, **requests: str) -> Manifest:
    return {"name": name, "image": "none", "resources": {"requests": requests}}


def custom(api_version: str, kind: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}


volcano_group = partial(custom, "scheduling.volcano.sh/v1beta1", "PodGroup")
queue = partial(custom, "scheduling.volcano.sh/v1beta1", "Queue")
quota = partial(custom, "scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota")
hypernode = partial(custom, "topology.volcano.sh/v1alpha1", "HyperNode")
device = partial(custom, "scheduling.koordinator.sh/v1alpha1", "Device")


# --- Annotations --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (f"{GANG}/groups", "x" * LARGEST),
        (f"{GANG}/groups", "[" * LARGEST),
        (f"{GANG}/groups", json.dumps([f"default/g{i}" for i in range(15_000)])),
        (f"{GANG}/min-available", "9" * LARGEST),
        (f"{GANG}/waiting-time", "NaN"),
        (f"{GANG}/total-number", "1e400"),
        (f"{GANG}/mode", ODD),
    ],
    ids=lambda text: text[:30],
)
def test_an_invalid_annotation_is_named_and_delays_nobody(key: str, text: str, servers_with_kinds: Servers) -> None:
    with fixture_cluster(servers_with_kinds) as here:
        gang = {f"{GANG}/name": "odd", f"{GANG}/min-available": "1"}
        here.cluster.create_raw(pod("odd", {**gang, key: text}))
        here.expect_others_to_be_scheduled()
        said = here.condition("Pod", "odd", VALID)
        assert said.startswith("False Invalid: ")
        assert key in said
        assert len(said) < 2000


@pytest.mark.parametrize("node", ['{"a":' * 40_000, "x" * LARGEST, "n1", ODD], ids=lambda text: text[:20])
def test_a_forged_nomination_is_ignored_and_removed_with_the_bind(node: str, servers_with_kinds: Servers) -> None:
    forged = {"volcano.sh/pipelined-status": "true", "volcano.sh/pipelined-node": node}
    with fixture_cluster(servers_with_kinds) as here:
        here.cluster.create_raw(pod("forged", forged))
        here.cluster.create_raw(pod("large", forged, containers=[container("main", cpu="100")]))
        here.expect_others_to_be_scheduled()
        assert here.node_of("forged")
        assert here.annotations_of("forged") == {}
        assert not here.node_of("large")


def test_odd_letters_in_a_name_of_a_gang_are_reported(servers_with_kinds: Servers) -> None:
    with fixture_cluster(servers_with_kinds) as here:
        here.cluster.create_raw(pod("odd", {f"{GANG}/name": ODD, f"{GANG}/min-available": "2"}))
        here.expect_others_to_be_scheduled()
        assert f"{GANG}/name" in here.condition("Pod", "odd", VALID)


# --- Amounts ------------------------------------------------------------------------------------------------------------------

NO_AMOUNTS: tuple[object, ...] = ("-5", "9" * 60, "1e400", "NaN", "Infinity", -7, 1e308, "", "⅓", {"cpu": 1}, [1], True, ODD)


@pytest.mark.parametrize("amount", NO_AMOUNTS, ids=repr)
def test_an_amount_that_is_none_costs_its_field_alone(amount: object, servers_with_kinds: Servers) -> None:
    with fixture_cluster(servers_with_kinds) as here:
        here.cluster.create_raw(volcano_group("g", {"minMember": 1, "minResources": {"cpu": amount}}))
        here.cluster.create_raw(pod("g-0", {"scheduling.k8s.io/group-name": "g"}))
        here.cluster.create_raw(queue("q", {"capability": {"cpu": amount}, "weight": amount}))
        here.cluster.create_raw(quota("e", {"max": {"cpu": amount}, "min": {"memory": amount}}))
        here.expect_others_to_be_scheduled()
        assert "minResources" in here.condition("PodGroup", "g", VALID)
        assert "capability" in here.condition("Queue", "q", VALID)
        assert "max" in here.condition("ElasticQuota", "e", VALID)


@pytest.mark.parametrize("number", ["NaN", -1, 10**30, 2.5, 1e308, "9" * 400, [1], {"a": 1}], ids=repr)
def test_an_invalid_minimum_is_reported(number: object, servers_with_kinds: Servers) -> None:
    with fixture_cluster(servers_with_kinds) as here:
        here.cluster.create_raw(volcano_group("g", {"minMember": number, "minTaskMember": {"a": number}}))
        here.cluster.create_raw(pod("g-0", {"scheduling.k8s.io/group-name": "g"}))
        here.expect_others_to_be_scheduled()
        assert "minMember" in here.condition("PodGroup", "g", VALID)


def test_the_largest_amounts_that_the_server_takes_add_up_to_no_nonsense(servers_with_kinds: Servers) -> None:
    with fixture_cluster(servers_with_kinds) as here:
        for name in ("giant-1", "giant-2", "giant-3"):
            allocatable = {
                "cpu": "9223372036854775807",
                "memory": "8E",
                "pods": "9223372036854775807",
                "nvidia.com/gpu": "9223372036854775807",
            }
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            here.cluster.apply({**node, "status": {"capacity": allocatable, "allocatable": allocatable}})
        for i in range(3):
            here.cluster.create_raw(pod(f"giant-{i}", containers=[container("main", cpu="9E", memory="7E")]))
        here.expect_others_to_be_scheduled()


def test_amounts_with_a_great_many_digits_are_read_as_the_server_reads_them(servers_with_kinds: Servers) -> None:
    with fixture_cluster(servers_with_kinds) as here:
        here.cluster.create_raw(pod("tiny", containers=[container("main", cpu="0.0000000001", memory="1n")]))
        here.cluster.create_raw(pod("thousandths", containers=[container("main", memory="128974848000m")]))
        here.expect_others_to_be_scheduled()
        assert here.node_of("tiny")
        assert here.node_of("thousandths")


# --- Sizes --------------------------------------------------------------------------------------------------------------------


def test_a_pod_of_thousands_of_containers_is_one_pod(servers_with_kinds: Servers) -> None:
    with fixture_cluster(servers_with_kinds) as here:
        many = largest(here, lambda count: pod("many", containers=[container(f"c{i}", cpu="1m") for i in range(count)]))
        assert many >= 2000
        here.expect_others_to_be_scheduled()
        assert here.node_of("many")


def largest(here: FixtureCluster, make: Callable[[int], Manifest]) -> int:
    """How many the server takes: it counts bytes."""
    for count in (10_000, 5_000, 4_000, 3_000, 2_000):
        with suppress(ApiError):
            here.cluster.create_raw(make(count))
            return count
    return 0


def test_a_pod_that_keeps_away_from_everybody_in_a_thousand_ways_gets_no_node_and_says_why(servers_with_kinds: Servers) -> None:
    with fixture_cluster(servers_with_kinds) as here:
        terms = [{"topologyKey": f"k{i}", "labelSelector": {"matchLabels": {"a": str(i)}}} for i in range(1000)]
        wary = pod("wary")
        wary["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        here.cluster.create_raw(wary)
        here.expect_others_to_be_scheduled()
        assert not here.node_of("wary")
        assert "has 1000 entries, and 32 are honoured at most" in here.condition("Pod", "wary", "PodScheduled")


def test_thousands_of_roles_and_tolerations_delay_nobody(servers_with_kinds: Servers) -> None:
    with fixture_cluster(servers_with_kinds) as here:
        here.cluster.create_raw(volcano_group("g", {"minMember": 1, "minTaskMember": {f"t{i}": 1 for i in range(5000)}}))
        patient = pod("g-0", {"scheduling.k8s.io/group-name": "g"})
        patient["spec"]["tolerations"] = [{"key": f"k{i}", "operator": "Exists"} for i in range(2000)]
        here.cluster.create_raw(patient)
        here.expect_others_to_be_scheduled()
        assert here.node_of("g-0"), "roles do not count where the gang needs fewer than they do together"


# --- Other objects ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["[", "(?P<", "(?=n)", "." * 100_000, "(a?){900}" * 9, ODD + "["], ids=lambda text: text[:10])
def test_a_hypernode_with_an_invalid_pattern_is_reported(pattern: str, servers_with_kinds: Servers) -> None:
    with fixture_cluster(servers_with_kinds) as here:
        member = {"type": "Node", "selector": {"regexMatch": {"pattern": pattern}}}
        here.cluster.create_raw(hypernode("h", {"tier": 1, "members": [member]}))
        here.expect_others_to_be_scheduled()
        said = here.condition("HyperNode", "h", VALID)
        assert "regexMatch.pattern" in said
        assert len(said) < 1000


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(a*)*b", ".*.*.*.*.*.*.*.*x"])
def test_a_pattern_that_backtracks_a_great_deal_delays_nobody(pattern: str, servers_with_kinds: Servers) -> None:
    with fixture_cluster(servers_with_kinds) as here:
        allocatable = {"cpu": "1", "memory": "1Gi", "pods": "1"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a" * 60 + "-n"}}
        here.cluster.apply({**node, "status": {"capacity": allocatable, "allocatable": allocatable}})
        member = {"type": "Node", "selector": {"regexMatch": {"pattern": pattern}}}
        here.cluster.create_raw(hypernode("h", {"tier": 1, "members": [member]}))
        here.expect_others_to_be_scheduled()


def test_devices_that_make_no_sense_cost_their_node_at_most(servers_with_kinds: Servers) -> None:
    with fixture_cluster(servers_with_kinds) as here:
        odd = {"type": "gpu", "minor": -3, "health": "yes", "resources": {"koordinator.sh/gpu-memory": "-1e400", "x": [ODD]}}
        here.cluster.create_raw(device("n1", {"devices": [odd] * 1000 + ["none", 5, None]}))
        here.expect_others_to_be_scheduled()


def test_an_object_with_nothing_in_it_is_an_object(servers_with_kinds: Servers) -> None:
    with fixture_cluster(servers_with_kinds) as here:
        for make in (volcano_group, queue, quota, hypernode, device):
            here.cluster.create_raw({**make("empty", {}), "spec": None})
            here.cluster.create_raw({**make("text", {}), "spec": ODD, "status": [1]})
        here.expect_others_to_be_scheduled()
