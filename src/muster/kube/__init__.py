"""Kubernetes: `read` decodes objects, `watch` lists and watches, `write` carries out effects; `live_cluster` joins them.

Imports go one way: read < watch < write < live_cluster. This package knows the model and nothing of scheduling: it makes no
decision. Only `watch.client` uses the network. The simulator shares `read` and the pure part of `write`. May be changed here: what
`live_cluster` collects before a cycle. Must not: lose an update, write without the lease. Tests: tests/kube/test_live_cluster.py.
"""
