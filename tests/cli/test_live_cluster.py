"""Asking the cluster of the kubeconfig: lists are read page by page, nothing is written, and what is forbidden is named."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.cli.commands import muster

AMOUNTS = {"nvidia.com/gpu": "8", "cpu": "64", "pods": "110"}
NODES = [{"metadata": {"name": f"n{number}", "uid": f"n{number}"}, "status": {"allocatable": AMOUNTS}} for number in range(2)]
POD = {
    "metadata": {"name": "train-0", "namespace": "prod", "uid": "u", "creationTimestamp": "2026-07-01T03:00:00Z"},
    "spec": {"schedulerName": "muster", "containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": "16"}}}]},
    "status": {"phase": "Pending"},
}
LISTS: dict[str, list[Any]] = {"/api/v1/nodes": NODES, "/api/v1/pods": [POD]}
FORBIDDEN = "/apis/storage.k8s.io/v1/csinodes"


class Api(BaseHTTPRequestHandler):
    requests: list[tuple[str, str]]

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        self.requests.append(("GET", address.path))
        items, begin = LISTS.get(address.path), int(parse_qs(address.query).get("continue", ["0"])[0])
        if items is None:
            self.answer(403 if address.path == FORBIDDEN else 404, {"kind": "Status", "message": "not for you"})
            return
        more = {"continue": str(begin + 1)} if begin + 1 < len(items) else {}
        self.answer(200, {"metadata": {"resourceVersion": "1", **more}, "items": items[begin : begin + 1]})

    def answer(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    Api.requests = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "me", "user": {}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    yield tmp_path / "config"
    server.shutdown()
    server.server_close()
    thread.join()


def test_without_a_file_the_cluster_of_the_kubeconfig_is_asked_and_only_read(kubeconfig: Path) -> None:
    result = muster("why", "train-0", "-n", "prod", "--context", "here", KUBECONFIG=str(kubeconfig))
    assert result.code == 0, result.err
    assert result.out.startswith("prod/train-0 is waiting for ")
    assert " decides  0/1 members placed, train-0 fits nowhere: 2 nodes too small (gpu)" in result.out
    assert " note     not read, because this user may not: csinodes" in result.out
    assert {method for method, _ in Api.requests} == {"GET"}
    assert not any("secrets" in path for _, path in Api.requests)
    nodes = muster("nodes", "--kubeconfig", kubeconfig)
    assert [line.split()[0] for line in nodes.out.splitlines()] == ["node", "n0", "n1", "note"]


def test_a_cluster_that_does_not_answer_is_no_bug(kubeconfig: Path) -> None:
    text = kubeconfig.read_text()
    kubeconfig.write_text(re.sub(r"127.0.0.1:\d+", "127.0.0.1:1", text))
    result = muster("queues", "--kubeconfig", kubeconfig)
    assert result.code == 64
    assert "muster: the cluster cannot be read" in result.err
