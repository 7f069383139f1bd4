"""Workloads as people write them (a Job, a JobSet, a Deployment, a RayCluster and others), read into the pods and PodGroups
that their controllers would make of them.

`workload_kinds` is the table of the kinds, `workloads` expands one object, `job_input` reads files and compares them with what runs
already. May be changed here: which kinds are known, and what their controllers make of them. Must not: decide where anything runs.
Tests: tests/test_workloads.py, tests/cli/test_plan.py.
"""
