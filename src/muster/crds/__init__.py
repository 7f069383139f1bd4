"""Definitions of the custom objects that Muster reads, for clusters in which nobody else brought them.

`definitions` says what they are, `install` gives a cluster those that it lacks. What a cluster has is never touched: it belongs to
whoever brought it.
"""
