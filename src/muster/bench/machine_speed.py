"""The speed of the machine, by fixed work in Python and NumPy, so that runs on different machines can be compared."""

from __future__ import annotations

import time

import numpy as np


def python_loops() -> float:
    """Million steps of a plain loop per second, the best of three."""
    return max(_python_once() for _ in range(3))


def numpy_rows() -> float:
    """Million rows per second through a column operation like those of a placement, the best of three."""
    return max(_numpy_once() for _ in range(3))


def _python_once() -> float:
    start = time.perf_counter()
    total, seen = 0, {}
    for i in range(300_000):
        total += i & 7
        seen[i & 1023] = total
    return 0.3 / (time.perf_counter() - start)


def _numpy_once() -> float:
    free = np.arange(5000 * 6, dtype=np.int64).reshape(5000, 6)
    need = np.array([1, 0, 1, 3, 0, 1], dtype=np.int64)
    start = time.perf_counter()
    for _ in range(200):
        np.where((free >= need).all(axis=1), free[:, 0] / np.maximum(free[:, 3], 1), -np.inf).argmax()
    return 200 * 5000 / 1e6 / (time.perf_counter() - start)
