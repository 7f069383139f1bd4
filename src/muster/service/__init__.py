"""The scheduling service that `muster run` starts: leader election, the scheduling loop, probes, metrics and the log.

`process` is the life of the process, `scheduling_loop` the thread that runs cycles, `live_views` what the API is shown of it;
`probe_server`, `metric_specs`, `prometheus_metrics` and `log_setup` are what an operator sees. May be changed here: intervals,
metrics (docs/metrics.md lists them, and a test compares) and log lines. Must not: decisions, which are the engine's, and writes,
which are `muster.kube.write`'s. Only the thread of the loop touches the world; others copy it between two cycles. Tests:
tests/kube/test_service.py, test_run.py, test_leader_failover.py and test_write_bursts.py.
"""
