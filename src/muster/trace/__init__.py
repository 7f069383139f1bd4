"""Histories of real clusters: read, played from event to event, and judged.

`job_trace` is what a history is; `columns`, `table_reader`, `log_reader` and `snapshot_reader` read one, `made_trace` makes one
from a seed; `job_simulation` plays it with a policy in virtual time, on values of the model; `outcome` says what came of it, as
a `run_result`; `sweep` makes many runs, here or on other machines; `comparison` sets policies beside each other. May be changed
here: formats, figures. Must not: decide anything, which is the scheduler's. Tests: tests/trace.
"""
