"""Muster: a gang-aware scheduler for Kubernetes."""

__version__ = "0.2.0"
