"""CustomResourceDefinitions of the kinds that Muster reads, for clusters that do not have them.

`crd_definitions` has the schemas, `crd_install` creates those that a cluster lacks; an existing one is never changed. A field
that `kube.read` decodes is added here with its type; no value is forbidden that can be decoded, because invalid ones get a
condition. Tests: tests/kube/test_crds.py.
"""
