"""Workloads of `muster bench` that need a checkout: preemption, reclaim, queues, quotas, recovery, and `live` on a real API server.

A module here with a tuple `WORKLOADS` is found by muster.bench.workload_registry. May be changed here: workloads and targets,
with the reason in the commit. Must not: be imported by the package. Tests: tests/cli/test_bench.py,
tests/kube/test_bench_live.py.
"""
