"""Effects to writes.

`write_order`, `effect_writes`, `status_updates`, `patch_bodies` and `merge_patch` are pure and shared with the simulator: what is
written in which order is decided there, and changed nowhere else. The rest sends the writes, concurrently and with retries. Must
hold: no write happens twice, no pod is evicted before the nominations of its plan are written, a crash between any two writes
loses nothing, and nothing is written that others own. Tests: tests/kube_write, tests/kube/test_writer.py, test_write_bursts.py,
test_event_recorder.py, the crash matrices.
"""
