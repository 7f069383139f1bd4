"""Consolidation: pods are moved together so that a gang fits that needs no more than is free. Nobody ends.

`movable_pods` says who may be moved, `move_search` finds the cheapest moves by amounts alone (`move_packing` tries all ways where
pods are few), `consolidate` tries them with all checks and decides, `moved_pods` keeps capacity for those that were moved until
they are created anew, `ended_moves` gives it to gangs of a higher priority.

What may be changed here: who may be moved, what a move costs, how it is looked for. The search must stay pure: only `consolidate`,
`moved_pods` and `ended_moves` change placements, and whoever is evicted must have capacity kept in the same plan. Tests:
tests/oracles (the best moves by trying all), scenarios/consolidate.
"""
