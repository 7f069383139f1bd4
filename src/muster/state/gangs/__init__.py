"""Gangs: assembled from pods, PodGroups and annotations, charged to queues, and how far each of them is.

May be changed here: what makes a gang (`gang_assembler`, `declared_gang`, `gang_groups`), who is charged where (`membership`),
how far a gang is (`gang_stage`), subgroups.
Must not: a stage is derived from the members every time and stored nowhere; membership alone charges the ledger.
Tests: tests/lifecycle, tests/queues, tests/kube_read/test_gang_examples.py.
"""
