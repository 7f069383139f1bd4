"""`muster bench`: what a workload and its target are, and the workloads of the decision path (`core`).

The other groups are in the folder `benchmarks` of a checkout. May be changed here: workloads and targets, with the reason in the
commit. Must not: measure without checking the outcome. Tests: tests/cli/test_bench.py.
"""
