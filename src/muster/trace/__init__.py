"""Histories of real clusters. `job_trace` is what a history is; `columns`, `table_reader` and `log_reader` read one.

May be changed here: formats, figures. Must not: decide anything, which is the scheduler's. Tests: tests/trace.
"""
