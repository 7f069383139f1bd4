"""CustomResourceDefinitions of the kinds that Muster reads, for clusters that do not have them.

`crd_definitions` has the schemas, `crd_install` creates those that a cluster lacks. A field that `kube.read` decodes is added here
with its type. Must not: change a definition that a cluster has, or forbid a value that can be decoded, because invalid ones get a
condition. Tests: tests/kube/test_crds.py.
"""
