"""API objects to model values, without network and clock.

Change here: a field, annotation or kind that the scheduler reads (`names`, then the struct and the decoder of its kind). Must
hold: no input raises anything but BadObject, an invalid field becomes a Problem with advice, pods of one template share their
signature, and decoding adds no work per pod that an interned template could save. Tests: tests/kube_read,
tests/kube/test_hostile_objects.py.
"""
