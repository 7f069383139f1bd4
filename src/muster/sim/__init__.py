"""The simulated cluster: API objects in virtual time, with kubelets, controllers and injected faults. `cluster.SimCluster` is it.

May be changed here: how the API server, kubelets and controllers behave, as far as the real ones do. Must not: nothing of a
scheduler lives here, no real clock is read, and the order of writes is kube/write's. Tests: tests/sim, and
tests/kube/test_contract.py runs the same on real servers.
"""
