"""Muster: a gang-aware scheduler for Kubernetes."""

__version__ = "0.1.0"
