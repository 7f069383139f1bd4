"""A cluster of one's own on loopback: a real etcd and kube-apiserver, with kubelets of our own. For tests and demonstrations."""
