"""A snapshot of a cluster as a file: `capture` lists the watched objects, `strip` removes all fields that no decision depends on,
`anonymize` replaces names, `snapshot_file` writes and reads the file.

A snapshot must decide like the cluster that it was taken from: what is stripped or renamed may not change a decision. Only
watched resources are read, never secrets. Tests: tests/kube/test_snapshot.py.
"""
