"""Scenarios from a seed that try everything a user, a node or another controller may do to a scheduler."""
