"""What would happen: one cycle that is not carried out, when a gang starts, which changes would make it run, and what there is to
say about it now.

`dry_run` runs one cycle on a copy of a cluster, `start_time` many of them, `remedies` tries changes of the gang or the cluster,
`gang_report` says what is known of a gang. May be changed here: which changes are tried, in which order, and what is said of them.
Must not: decide anything otherwise than a scheduler would, which is the same code, or change a cluster; a scheduler needs nothing
of this to decide. Tests: tests/cli/test_why.py, test_plan.py, test_start.py, test_remedies.py; benchmarks/start_time_workloads.py.
"""
