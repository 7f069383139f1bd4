"""Policies, one to a file. Plugins know the engine's hooks and the world, and never each other."""
