"""State: facts, placements and memory, what changed, and what is derived from them. NumPy starts here.

Only the store changes facts, only `Placements.move` changes placements, and writes to memory are journaled:
tests/test_world_parts.py holds the list of writers. A mutator must bump its topics where it writes. Derived values can be thrown
away at any time. Tests: tests/lifecycle, tests/queues, tests/placement, tests/topology, tests/devices.
"""
