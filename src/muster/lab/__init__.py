"""A local cluster for `muster demo --kube`, the live benchmarks and tests: etcd, kube-apiserver, simulated kubelets, `muster run`.

`servers` starts the two servers (`assets` finds their binaries, `server_build` builds them), `kubelets` runs the controllers of
`muster.sim` against them, `demo_timeline` and `demo_state` are the demo. May be changed here: the demo, the flags of the
servers. Must not: be imported by anything that schedules. Tests: tests/kube/test_lab.py, test_lab_kubelet.py and test_demo.py.
"""
