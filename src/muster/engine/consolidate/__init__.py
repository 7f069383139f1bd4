"""Consolidation: pods are moved together so that a gang fits that needs no more than is free. Nobody ends.

`movable_pods` says who may be moved, `move_search` finds the cheapest moves by amounts alone, `consolidate` tries them with all
checks and decides, `moved_pods` keeps capacity for those that were moved until they are created anew. The search is pure; only
`consolidate` and `moved_pods` change placements. Tests are in tests/consolidate, the optimum in tests/oracles.
"""
