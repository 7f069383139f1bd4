"""The engine: one cycle, pure. `cycle.py` is the numbered list of its steps.

May be changed here: actions, how plugins' answers combine (`hooks.py`, `session.py`), the sentences of verdicts (`explain.py`).
Must not: no clock, no I/O, no randomness, no policy of a single plugin; pods move through a `Trial` alone.
Tests: scenarios/, tests/lifecycle, tests/placement, tests/evict, tests/preempt, tests/queues.
"""
