"""The deployment: the same objects as manifest and as chart, and a role with exactly the permissions that are needed."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.commands import ROOT, muster
from tests.harness.blocking_client import BlockingClient
from tests.harness.debian_packages import installed
from tests.harness.etcd_reset import ResettableServers as Servers
from tests.kube.helm_template import render
from tests.kube.scheduler_process import RunProcess, eventually
from tests.kube.small_live_cluster import MERGE, PODS, FixtureCluster

from muster import __version__
from muster.config import load_policy
from muster.crds.crd_definitions import definitions, name_of
from muster.kube.read.api_resources import WATCHED
from muster.lab.assets import Assets
from muster.service.metric_specs import METRICS
from muster.service.prometheus_metrics import Metrics

DEPLOY = ROOT / "deploy"
NAMESPACE = "muster-system"
MONITORING_OFF = {"serviceMonitor": False, "prometheusRule": False, "dashboard": False, "queueMetrics": False}
HOW_PROMTOOL = "no promtool: apt-get install prometheus, or go install github.com/prometheus/prometheus/cmd/promtool@latest"
USER = "system:serviceaccount:muster-system:muster"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NO_STATUS = ("podgroups.scheduling.volcano.sh", "elasticquotas.scheduling.sigs.k8s.io", "podgroups.scheduling.sigs.k8s.io")
HYPERNODES = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
SOFT = "scheduling.koordinator.sh/soft-eviction"
SIGS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default"


def find_promtool() -> str | None:
    installed("promtool", packages=("prometheus",))
    return shutil.which("promtool")


def plain() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "muster.yaml").read_text()))


def one(kind: str) -> dict[str, Any]:
    (found,) = [each for each in plain() if each["kind"] == kind]
    return found


# --- The objects ------------------------------------------------------------------------------------------------------------------


def test_the_chart_and_the_plain_manifests_are_the_same_objects() -> None:
    first, *others = plain()
    assert first == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    assert others == render(DEPLOY / "chart", namespace=NAMESPACE)


SHADOW = "muster-shadow"


def shadow() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "shadow.yaml").read_text()))


def test_the_chart_makes_a_shadow_of_the_plain_manifests_too() -> None:
    first, *others = shadow()
    assert first == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHADOW}}
    switched = {"enabled": True, "scheduler": "volcano", "period": "1h"}
    assert others == render(DEPLOY / "chart", namespace=SHADOW, name=SHADOW, shadow=switched)
    # Both can be in one cluster.
    named = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in (*plain(), *shadow())]
    assert len(set(named)) == len(named)


def test_a_shadow_may_read_what_is_watched_and_nothing_else() -> None:
    (role,) = [each for each in shadow() if "Role" in each["kind"] and "rules" in each]
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    read = {(group, what) for rule in role["rules"] for group in rule["apiGroups"] for what in rule["resources"]}
    assert read == {(resource.group, resource.plural) for resource in WATCHED if resource.group != "muster.dev"}


def test_values_of_the_chart_change_what_they_say() -> None:
    policy = "schedulerNames: [muster, volcano]\n"
    made = render(DEPLOY / "chart", namespace="elsewhere", replicas=3, image="our/muster:1", policy=policy)
    deployment = next(each for each in made if each["kind"] == "Deployment")
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "our/muster:1"
    assert {each["metadata"]["namespace"] for each in made if "Cluster" not in each["kind"]} == {"elsewhere"}
    assert next(each for each in made if each["kind"] == "ConfigMap")["data"]["policy.yaml"] == policy


def test_another_policy_replaces_the_pods() -> None:
    def template(**values: Any) -> Any:
        made = render(DEPLOY / "chart", namespace=NAMESPACE, **values)
        return next(each for each in made if each["kind"] == "Deployment")["spec"]["template"]

    assert template() == template()
    assert template(policy="schedulerNames: [muster, volcano]\n") != template()


def test_what_is_off_by_default_can_be_switched_on() -> None:
    def made(**values: Any) -> dict[tuple[str, str], dict[str, Any]]:
        found = render(DEPLOY / "chart", namespace=NAMESPACE, **values)
        return {(each["kind"], each["metadata"]["name"]): each for each in found}

    off = MONITORING_OFF
    all_on = dict.fromkeys(off, True)
    plain_objects, on = made(), made(monitoring=all_on, api={"enabled": True, "secret": "own"})
    assert on.keys() - plain_objects.keys() == {
        *(("Service", "muster-metrics"), ("ServiceMonitor", "muster"), ("PrometheusRule", "muster")),
        *(("ConfigMap", "muster-dashboard"), ("Service", "muster-api"), ("ClusterRole", "muster-api")),
        ("ClusterRoleBinding", "muster-api"),
    }
    spec = on["Deployment", "muster"]["spec"]["template"]["spec"]
    assert {"--queue-metrics", "--api-address=:8443"} < set(spec["containers"][0]["args"])
    assert {"name": "api", "secret": {"secretName": "own"}} in spec["volumes"]
    only = made(monitoring={**off, "dashboard": True})
    assert only.keys() - plain_objects.keys() == {("ConfigMap", "muster-dashboard")}


def test_the_alerts_are_those_of_the_documents_and_name_metrics_that_exist() -> None:
    values = {"serviceMonitor": False, "prometheusRule": True, "dashboard": True, "queueMetrics": False}
    rule, dashboard = [
        each
        for each in render(DEPLOY / "chart", namespace=NAMESPACE, monitoring=values)
        if each["kind"] == "PrometheusRule" or each["metadata"]["name"] == "muster-dashboard"
    ]
    rules = rule["spec"]["groups"][0]["rules"]
    document = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").split("## Alerts", 1)[1]
    written = re.findall(r"^\| [^|`]+ \| `([^`]+)`(?: for (\d+ m))? \| (.*) \|$", document, re.MULTILINE)
    assert [(each["expr"], each.get("for", "").replace("m", " m"), each["annotations"]["summary"]) for each in rules] == written
    panels = json.loads(dashboard["data"]["muster.json"])["panels"]
    queries = [each["expr"] for each in rules] + [target["expr"] for panel in panels for target in panel["targets"]]
    known = {metric.name for metric in METRICS}
    named = {re.sub(r"_(bucket|sum|count)$", "", name) for query in queries for name in re.findall(r"muster_\w+", query)}
    assert named <= known
    assert len({panel["id"] for panel in panels}) == len(panels) > 10
    labels = {metric.name: {"le", *metric.labels} for metric in METRICS}
    for query in queries:
        of = set().union(*(labels[re.sub(r"_(bucket|sum|count)$", "", name)] for name in re.findall(r"muster_\w+", query)))
        grouped = {name for names in re.findall(r"by \(([^)]*)\)", query) for name in names.split(", ")}
        assert grouped | set(re.findall(r"(\w+)=~?\"", query)) <= of, query


def test_promtool_finds_no_fault_in_the_alerts(tmp_path: Path) -> None:
    """Prometheus' own checks of the rules: expressions, durations, labels and templates."""
    promtool = find_promtool()
    if promtool is None:
        pytest.skip(HOW_PROMTOOL)
    monitoring = {**MONITORING_OFF, "prometheusRule": True}
    made = render(DEPLOY / "chart", namespace=NAMESPACE, monitoring=monitoring)
    (rule,) = [each for each in made if each["kind"] == "PrometheusRule"]
    file = tmp_path / "rules.yaml"
    for rules, is_right in (
        (rule["spec"], True),
        ({"groups": [{"name": "bad", "rules": [{"alert": "a", "expr": "sum("}]}]}, False),
    ):
        file.write_text(yaml.safe_dump(rules))
        ran = subprocess.run((promtool, "check", "rules", "--lint=all", "--lint-fatal", file), capture_output=True, text=True)
        assert (ran.returncode == 0) is is_right, ran.stdout + ran.stderr


def test_promtool_reads_all_queries_of_the_dashboard(tmp_path: Path) -> None:
    promtool = find_promtool()
    if promtool is None:
        pytest.skip(HOW_PROMTOOL)
    panels = json.loads((DEPLOY / "chart" / "dashboards" / "muster.json").read_text())["panels"]
    queries = [target["expr"].replace("$__rate_interval", "5m") for panel in panels for target in panel["targets"]]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    ran = subprocess.run((promtool, "check", "rules", tmp_path / "rules.yaml"), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_an_alert_is_raised_where_no_replica_answers_or_two_lead(tmp_path: Path) -> None:
    promtool = find_promtool()
    if promtool is None:
        pytest.skip(HOW_PROMTOOL)
    made = render(DEPLOY / "chart", namespace=NAMESPACE, monitoring={**MONITORING_OFF, "prometheusRule": True})
    (rule,) = [each["spec"] for each in made if each["kind"] == "PrometheusRule"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rule))
    summary = "all replicas are down, or they cannot reach the Lease"
    raised = [{"exp_labels": {"severity": "critical"}, "exp_annotations": {"summary": summary}}]
    for values, alerts in (([], raised), (["1x10"], []), (["1x10", "0x10"], []), (["1x10", "1x10"], raised)):
        series = [{"series": f'muster_leader{{pod="{number}"}}', "values": each} for number, each in enumerate(values)]
        test = {"interval": "1m", "input_series": series}
        test["alert_rule_test"] = [{"eval_time": "5m", "alertname": "MusterNoLeader", "exp_alerts": alerts}]
        (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": [test]}))
        ran = subprocess.run((promtool, "test", "rules", tmp_path / "test.yaml"), capture_output=True, text=True)
        assert ran.returncode == 0, (values, ran.stdout + ran.stderr)


def test_promtool_finds_no_fault_in_the_metrics() -> None:
    promtool = find_promtool()
    if promtool is None:
        pytest.skip(HOW_PROMTOOL)
    page = Metrics().page()
    ran = subprocess.run((promtool, "check", "metrics"), input=page, capture_output=True)
    assert ran.returncode == 0, ran.stdout.decode() + ran.stderr.decode()


def test_the_version_is_the_same_everywhere() -> None:
    chart = yaml.safe_load((DEPLOY / "chart" / "Chart.yaml").read_text())
    assert {chart["version"], chart["appVersion"]} == {__version__}
    assert one("Deployment")["spec"]["template"]["spec"]["containers"][0]["image"] == f"muster:{__version__}"
    assert f"muster:{__version__}" in (DEPLOY / "Dockerfile").read_text()


def test_the_image_has_what_was_tested_and_checks_its_digests() -> None:
    def pins(lock: Path) -> set[tuple[str, ...]]:
        """Each version with its digests."""
        return {tuple(re.findall(r"^\S+==\S+|sha256:\w{64}", one)) for one in re.split(r"\n(?=\w)", lock.read_text())[1:]}

    for name in ("requirements.lock", "build.lock"):
        found = pins(DEPLOY / name)
        assert found <= pins(ROOT / "requirements.lock")
        assert min(map(len, found)) >= 2
    installs = re.findall(r"pip (?:install|wheel) .*", (DEPLOY / "Dockerfile").read_text())
    assert len(installs) == 4
    assert all("--require-hashes" in one or "--no-deps" in one for one in installs)


def test_the_shipped_policy_and_the_shipped_flags_can_be_used() -> None:
    assert load_policy(one("ConfigMap")["data"]["policy.yaml"]).settings.scheduler_names == ("muster",)
    container = one("Deployment")["spec"]["template"]["spec"]["containers"][0]
    ran = muster(*container["args"][:1], "--policy=nowhere.yaml", *container["args"][2:])
    # All flags are understood: only the file is not there.
    assert "nowhere.yaml: no such file" in ran.err


def test_the_process_runs_as_nobody_and_cannot_write_to_its_file_system() -> None:
    spec = one("Deployment")["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "USER 65532:65532" in (DEPLOY / "Dockerfile").read_text()


# --- The role ---------------------------------------------------------------------------------------------------------------------


def granted() -> dict[str, set[tuple[str, str]]]:
    """By verb: group and resource."""
    found: dict[str, set[tuple[str, str]]] = {}
    for rule in one("ClusterRole")["rules"]:
        for verb in rule["verbs"]:
            found.setdefault(verb, set()).update((group, what) for group in rule["apiGroups"] for what in rule["resources"])
    return found


def test_what_is_watched_may_be_read_and_nothing_else() -> None:
    own = {("muster.dev", "plans"), ("muster.dev", "histories")}
    watched = {(resource.group, resource.plural) for resource in WATCHED} - own
    rights = granted()
    assert rights["get"] == rights["list"] == rights["watch"] == watched
    assert not {"*", "update", "deletecollection"} & rights.keys()
    assert rights["delete"] == {("", "pods")}
    assert rights["create"] == {("", "pods/binding"), ("", "pods/eviction"), ("", "events")}


@pytest.fixture(scope="module")
def cluster_as_shipped(assets: Assets) -> Iterator[Servers]:
    """A cluster with the shipped objects in it, applied as they are. Some definitions are others': with no path for the status."""
    with Servers(assets) as running:
        with running.api() as api:
            for manifest in plain():
                _create(api, manifest)
            for definition in definitions():
                if name_of(definition) in NO_STATUS:
                    del definition["spec"]["versions"][0]["subresources"]
                    api.request("POST", DEFINITIONS, body=definition)
        assert muster("crds", "--install", "--kubeconfig", running.kubeconfig()).code == 0
        yield running


PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "ConfigMap": f"/api/v1/namespaces/{NAMESPACE}/configmaps",
    "Deployment": f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
    "PodDisruptionBudget": f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles",
    "RoleBinding": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings",
}


def _create(api: BlockingClient, manifest: dict[str, Any]) -> None:
    # A field that the server does not know is a fault of the manifest.
    api.request("POST", f"{PATHS[manifest['kind']]}?fieldValidation=Strict", body=manifest)


@pytest.mark.parametrize(
    ("verb", "group", "resource", "subresource", "namespace"),
    [
        ("get", "", "secrets", "", "default"),
        ("list", "", "secrets", "", ""),
        ("watch", "", "secrets", "", ""),
        ("get", "", "configmaps", "", "default"),
        ("create", "", "configmaps", "", "default"),
        ("patch", "", "configmaps", "", NAMESPACE),
        ("create", "", "pods", "", "default"),
        ("patch", "", "pods", "", "default"),
        ("update", "", "pods", "status", "default"),
        ("create", "", "pods", "exec", "default"),
        ("create", "", "serviceaccounts", "token", NAMESPACE),
        ("delete", "", "nodes", "", ""),
        ("patch", "", "nodes", "", ""),
        ("delete", "", "persistentvolumes", "", ""),
        ("delete", "", "events", "", "default"),
        ("patch", "scheduling.volcano.sh", "queues", "", ""),
        ("delete", "scheduling.volcano.sh", "podgroups", "", "default"),
        ("patch", "scheduling.x-k8s.io", "podgroups", "", "default"),
        ("delete", "scheduling.sigs.k8s.io", "elasticquotas", "", "default"),
        ("create", "apiextensions.k8s.io", "customresourcedefinitions", "", ""),
        ("create", "rbac.authorization.k8s.io", "clusterrolebindings", "", ""),
        ("create", "coordination.k8s.io", "leases", "", "kube-system"),
        ("patch", "coordination.k8s.io", "leases", "", NAMESPACE),
        ("impersonate", "", "users", "", ""),
    ],
)
def test_the_shipped_role_is_refused(
    cluster_as_shipped: Servers, verb: str, group: str, resource: str, subresource: str, namespace: str
) -> None:
    asked = {"verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace}
    with cluster_as_shipped.api() as api:
        review = {"spec": {"user": USER, "groups": ["system:authenticated"], "resourceAttributes": asked}}
        assert api.request("POST", REVIEWS, body=review)["status"]["allowed"] is False


def test_the_shipped_role_is_enough_to_schedule(cluster_as_shipped: Servers, tmp_path: Path) -> None:
    """Bind, nominate, evict with all three methods, write conditions on every kind of object, bind a volume: no request is
    refused."""
    kubeconfig = cluster_as_shipped.kubeconfig(USER, ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"))
    softly = tmp_path / "policy.yaml"
    softly.write_text(SOFT_EVICTION_POLICY)
    with cluster_as_shipped.api() as api:
        cluster = FixtureCluster(api)
        cluster.nodes("n1", "n2")
        cluster.priority("high", 1000)
        _write_queues(api)
        with RunProcess(kubeconfig, "--lease-namespace", NAMESPACE, "--namespace", NAMESPACE, election=True) as first:
            first.wait_until_ready()
            _serves_a_gang_of_volcano(cluster)
            _evicts_for_a_gang(cluster)
            _reports_errors(cluster)
            _assert_nothing_was_refused(first, evictions="evict")
            assert first.stop() == 0
        with RunProcess(
            kubeconfig, "--lease-namespace", NAMESPACE, "--namespace", NAMESPACE, "--policy", softly, election=True
        ) as second:
            second.wait_until_ready()
            _deletes_for_a_pod(cluster)
            _evicts_softly_for_a_job(cluster)
            _chooses_a_volume(cluster)
            _assert_nothing_was_refused(second, evictions="delete")
            assert second.stop() == 0


SOFT_EVICTION_POLICY = """\
plugins:
- priority
- elastic-quota: {podShouldBeDeletedWhenPreempted: false}
- selectors
- taints
- volumes
- fit
- binpack
- nominated
- pdb: {mode: soft}
"""


def _write_queues(api: BlockingClient) -> None:
    odd = {"tier": 1, "members": [{"type": "Node", "selector": {"regexMatch": {"pattern": "("}}}]}
    for path, kind, name, spec in (
        (f"{VOLCANO}/queues", "Queue", "team", {"weight": 1}),
        (f"{VOLCANO}/queues", "Queue", "odd", {"parent": "nobody"}),
        (HYPERNODES, "HyperNode", "odd", odd),
        (f"{SIGS}/elasticquotas", "ElasticQuota", "quota", {"min": {"cpu": 2}, "max": {"cpu": 2}}),
    ):
        api.request("POST", path, body=_made(path, kind, name, spec))


def _serves_a_gang_of_volcano(cluster: FixtureCluster) -> None:
    groups = f"{VOLCANO}/namespaces/default/podgroups"
    cluster.api.request("POST", groups, body=_made(VOLCANO, "PodGroup", "train", {"minMember": 2, "queue": "team"}))
    for number in range(2):
        cluster.pod(f"train-{number}", annotations={"scheduling.k8s.io/group-name": "train"})
    eventually(lambda: len(cluster.placed()) == 2)
    eventually(lambda: cluster.api.request("GET", f"{groups}/train").get("status", {}).get("phase"))
    eventually(lambda: cluster.api.request("GET", f"{VOLCANO}/queues/team").get("status", {}).get("allocated"))
    eventually(lambda: "Scheduled" in {event["reason"] for event in cluster.events()})


def _evicts_for_a_gang(cluster: FixtureCluster) -> None:
    cluster.gang("low", pods=2)
    eventually(lambda: len(cluster.placed()) == 4)
    cluster.gang("high", pods=2, priorityClassName="high")
    eventually(lambda: {"high-0", "high-1"} <= cluster.placed().keys())
    eventually(lambda: "Preempting" in {event["reason"] for event in cluster.events()})


def _reports_errors(cluster: FixtureCluster) -> None:
    cluster.gang("big", pods=4, cpu="4")
    eventually(lambda: any(word["type"] == "PodScheduled" for word in _conditions(cluster.get("big-0"))))
    notes = {"metadata": {"annotations": {"volcano.sh/node-vgpu-register": "nonsense"}}}
    cluster.api.request("PATCH", "/api/v1/nodes/n2", body=notes, content_type=MERGE)
    for path in (f"{VOLCANO}/queues/odd", f"{HYPERNODES}/odd", "/api/v1/nodes/n2"):
        eventually(
            lambda path=path: any(word["type"] == "muster.dev/Valid" for word in _conditions(cluster.api.request("GET", path)))
        )
    for name in ("big-0", "big-1", "big-2", "big-3"):
        cluster.api.request("DELETE", f"{PODS}/{name}")


def _deletes_for_a_pod(cluster: FixtureCluster) -> None:
    cluster.priority("higher", 2000)
    cluster.pod("single", priorityClassName="higher")
    eventually(lambda: "single" in cluster.placed())


def _evicts_softly_for_a_job(cluster: FixtureCluster) -> None:
    groups = f"{SIGS}/podgroups"
    cluster.nodes("n3")
    for name in ("modest", "grand"):
        cluster.api.request("POST", groups, body=_made(SIGS, "PodGroup", name, {"minMember": 1}))
    quota = {"quota.scheduling.koordinator.sh/name": "quota"}
    cluster.pod("modest", labels={**quota, "pod-group.scheduling.sigs.k8s.io": "modest"})
    eventually(lambda: "modest" in cluster.placed())
    eventually(lambda: cluster.api.request("GET", f"{SIGS}/elasticquotas/quota").get("status", {}).get("used"))
    safe = {**quota, "quota.scheduling.koordinator.sh/preemptible": "false"}
    cluster.pod("grand", labels={**safe, "pod-group.scheduling.sigs.k8s.io": "grand"}, priorityClassName="high")
    eventually(lambda: SOFT in (cluster.get("modest") or {})["metadata"]["labels"])
    eventually(lambda: (cluster.get("grand") or {})["status"].get("nominatedNodeName") == "n3")
    cluster.api.request("DELETE", f"{PODS}/modest")
    eventually(lambda: "grand" in cluster.placed())
    eventually(lambda: cluster.api.request("GET", f"{groups}/grand").get("status", {}).get("phase"))


def _chooses_a_volume(cluster: FixtureCluster) -> None:
    request, classes = cluster.api.request, "/apis/storage.k8s.io/v1/storageclasses"
    waits = {
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    request("POST", classes, body=waits)
    size: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n3"]}]}]
    volume = {**size, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/d"}}
    volume["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    request("POST", "/api/v1/persistentvolumes", body={"metadata": {"name": "v"}, "spec": volume})
    request("PATCH", "/api/v1/persistentvolumes/v/status", body={"status": {"phase": "Available"}}, content_type=MERGE)
    claim = {**size, "resources": {"requests": {"storage": "1Gi"}}}
    request("POST", "/api/v1/namespaces/default/persistentvolumeclaims", body={"metadata": {"name": "c"}, "spec": claim})
    cluster.pod("stores", cpu="1", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    eventually(lambda: request("GET", "/api/v1/persistentvolumes/v")["spec"].get("claimRef"))


def _assert_nothing_was_refused(running: RunProcess, *, evictions: str) -> None:
    assert running.metric('muster_api_request_duration_seconds_count{status="403"}') == 0
    assert running.metric("muster_watch_forbidden") == 0
    assert running.metric(f'muster_evictions_total{{method="{evictions}"}}') > 0
    assert not [line for line in running.lines if line.get("level") == "error" or str(line.get("error", "")).startswith("403 ")]


def _conditions(found: dict[str, Any] | None) -> list[dict[str, Any]]:
    conditions: list[dict[str, Any]] = (found or {}).get("status", {}).get("conditions", [])
    return conditions


def _made(group: str, kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    version = "/".join(group.split("/")[2:4])
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
