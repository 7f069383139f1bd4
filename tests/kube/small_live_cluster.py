"""A few nodes and gangs on a real API server, made and looked at without an event loop."""

from __future__ import annotations

from typing import Any

from tests.harness.blocking_client import BlockingClient, RequestRefused
from tests.kube.scheduler_process import eventually

PODS = "/api/v1/namespaces/default/pods"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
MERGE = "application/merge-patch+json"
KOORDINATOR = "gang.scheduling.koordinator.sh"


class FixtureCluster:
    """What a user does and sees. Pods go at once when they are deleted: nobody here takes the time to end them."""

    def __init__(self, api: BlockingClient) -> None:
        self.api = api

    def nodes(self, *names: str, cpu: str = "4") -> None:
        allocatable = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
        for name in names:
            self.api.request("POST", "/api/v1/nodes", body={"metadata": {"name": name}})
            self.api.request("PATCH", f"/api/v1/nodes/{name}", body={"spec": {"taints": None}}, content_type=MERGE)
            status = {"status": {"capacity": allocatable, "allocatable": allocatable}}
            self.api.request("PATCH", f"/api/v1/nodes/{name}/status", body=status, content_type=MERGE)

    def priority(self, name: str, value: int) -> None:
        """A class, once the server lets pods name it: it learns of classes a little later than it says so."""
        self.api.request("POST", CLASSES, body={"metadata": {"name": name}, "value": value})
        eventually(lambda: self._knows_class(name))

    def _knows_class(self, name: str) -> bool:
        spec = {"containers": [{"name": "main", "image": "none"}], "priorityClassName": name}
        try:
            self.api.request("POST", f"{PODS}?dryRun=All", body={"metadata": {"name": f"probe-{name}"}, "spec": spec})
        except RequestRefused as error:
            if "no PriorityClass" in str(error):
                return False
            raise
        return True

    def gang(self, name: str, *, pods: int, cpu: str = "2", min_: int | None = None, **spec: Any) -> None:
        annotations = {f"{KOORDINATOR}/name": name, f"{KOORDINATOR}/min-available": str(min_ or pods)}
        for number in range(pods):
            self.pod(f"{name}-{number}", cpu=cpu, annotations=annotations, **spec)

    def pod(
        self,
        name: str,
        *,
        cpu: str = "2",
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> dict[str, Any]:
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        body = {
            "metadata": {"name": name, "annotations": annotations or {}, "labels": labels or {}},
            "spec": {"schedulerName": "muster", "terminationGracePeriodSeconds": 0, "containers": [container], **spec},
        }
        made: dict[str, Any] = self.api.request("POST", PODS, body=body)
        return made

    def get(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self.api.request("GET", f"{PODS}/{name}")
        except RequestRefused as error:
            if error.status == 404:
                return None
            raise
        return found

    def placed(self) -> dict[str, str]:
        """The node of each pod that has one."""
        items = self.api.request("GET", PODS)["items"]
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in items if pod["spec"].get("nodeName")}

    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api.request("GET", "/api/v1/namespaces/default/events")["items"]
        return found
