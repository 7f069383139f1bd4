"""The model: frozen values, standard library only. Every other package speaks in these nouns.

May be changed here: fields, with their meaning in a docstring. Must not: no behaviour that needs time, order or another package.
Tests: every test; tests/kube_read checks how API objects become these values.
"""
