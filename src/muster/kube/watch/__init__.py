"""Access to an API server: credentials, client, list and watch, leader election.

Change here: how requests are sent, retried and observed. Must hold: each version of an object is passed on once and a deletion
once, errors of the server are retried and never raised to the scheduling loop, and at most one process writes. No work per watch
event beyond decoding its metadata. Tests: tests/kube/test_client.py, test_access.py, test_reflector.py, test_leader_election.py.
"""
