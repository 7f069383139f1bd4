"""Derived values: what follows from facts and placements (counts by topology, device usage, host ports, mounts, domains).

May be changed here: how a value is computed and which topics it depends on. Must not: no value here is a fact of its own; all can
be thrown away at any time (`DerivedValues.clear`), and a scheduler that does so before every cycle decides the same.
Tests: tests/placement, tests/topology, tests/devices; tests/test_world_parts.py lists topics, who bumps and who needs them.
"""
