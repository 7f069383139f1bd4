"""Evicting actions: which placed pods are evicted for which gang, and no more than needed. One search serves all of them.

`evict_actions` picks the asks and carries plans out. `victim_search` is the search, with `domain_search` and `single_node` as its
strategies; `victims` (the table of placed pods) and `eviction_units` are what it searches among. `eviction_policy`, `reclaim` and
`job_preempt` say which pods an action may evict, `queue_comparison` which queue may take from which, `contested` in which
dimensions. `plan_order` is the one order of units and plans; `eviction_history` remembers who lost what.

To change who may be evicted, or in which order, add or change rules or a plugin's hook; to change how nodes are tried, a strategy.
Evicting a unit, putting it back and ending a gang must stay in `victim_search`, and a search changes nothing outside a trial.
Tests: tests/evict, tests/preempt (with a slow twin), tests/quota; scenarios/evict, preempt, quota.
"""
