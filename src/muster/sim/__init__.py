"""The embedded cluster: API objects in virtual time, with kubelets, controllers and faults. `cluster.SimCluster` is the door."""
