"""A cluster for people and their programs: the API, the page and the report that opens without a server.

`cluster_view` turns a copied world into rows, `run_history` keeps what happened before; `view_source` is what both the live
scheduler and a file have in common. `api_server` answers requests, `api_access` says who may ask, `visibility` what a tenant is
shown. Questions that take a cycle (`dry_runs`) are answered by a process of their own. May be changed here: what is shown, with
`static/openapi.json`. Must not: decisions, and anything of the world. Tests: tests/web.
"""
