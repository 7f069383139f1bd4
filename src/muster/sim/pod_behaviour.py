"""How a simulated pod behaves: annotations `sim.muster.dev/...` that only the simulated cluster reads.

run-seconds             how long it runs after its start; without it, until it is deleted
exit                    `failed`: its phase is Failed after that
startup-seconds         from its bind to its start
termination-seconds     from its deletion to its end, whatever its grace period; or `never`
controller              `recreate`: a controller re-creates it under the same name when it is lost
recreate-after-seconds  how long that takes
recreate-limit          how often at most
recreations             how often it was re-created; written by the controller
cleanup-after-seconds   an operator deletes it so long after it was labelled for a soft eviction; without it, none does
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from muster.kube.read.object_references import ManifestView
from muster.sim.api_kinds import BadManifest, suggestion

BEHAVIOUR_PREFIX = "sim.muster.dev/"
RECREATED_ANNOTATION = f"{BEHAVIOUR_PREFIX}recreations"
CONTROLLER_ANNOTATION = f"{BEHAVIOUR_PREFIX}controller"
_RECREATE_LIMIT_ANNOTATION = f"{BEHAVIOUR_PREFIX}recreate-limit"


@dataclass(frozen=True, slots=True)
class PodBehaviour:
    """None: not annotated. `inf`: for ever."""

    run_s: float | None = None
    run_fails: bool = False
    startup_s: float | None = None
    termination_s: float | None = None
    recreate: bool = False
    recreate_after_s: float = 0.0
    recreate_limit: float = inf
    recreations: int = 0
    cleanup_after_s: float | None = None


DEFAULT_BEHAVIOUR = PodBehaviour()


def behaviour_of(manifest: ManifestView) -> PodBehaviour:
    """Raises BadManifest for an unknown annotation or value."""
    values: dict[str, Any] = {}
    for key, text in (manifest["metadata"].get("annotations") or {}).items():
        name = key.removeprefix(BEHAVIOUR_PREFIX)
        if name == key:
            continue
        if name not in _READERS:
            retired = {"leave-seconds": "termination-seconds"}.get(name)
            known = [f"{BEHAVIOUR_PREFIX}{each}" for each in ([retired] if retired else _READERS)]
            raise BadManifest(f"metadata.annotations[{key}]: unknown annotation of the simulator{suggestion(key, known)}")
        field, read = _READERS[name]
        values[field] = read(key, text)
    return PodBehaviour(**values) if values else DEFAULT_BEHAVIOUR


def recreate_annotations(manifest: ManifestView, *, always: bool) -> dict[str, str]:
    """The annotations by which a terminating pod is re-created after its end: once, or whenever it is lost."""
    if always:
        return {CONTROLLER_ANNOTATION: "recreate"}
    return {CONTROLLER_ANNOTATION: "recreate", _RECREATE_LIMIT_ANNOTATION: str(behaviour_of(manifest).recreations + 1)}


def _number(key: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < inf:
        raise BadManifest(f"metadata.annotations[{key}]: {text!r} is no number from 0 on; write for example 30")
    return found


def _number_or_never(key: str, text: str) -> float:
    return inf if text == "never" else _number(key, text)


def _one_of(yes: str, no: str, key: str, text: str) -> bool:
    if text not in (yes, no):
        raise BadManifest(f"metadata.annotations[{key}]: {text!r} is neither {yes} nor {no}")
    return text == yes


_READERS: dict[str, tuple[str, Callable[[str, str], float]]] = {
    "run-seconds": ("run_s", _number),
    "exit": ("run_fails", partial(_one_of, "failed", "succeeded")),
    "startup-seconds": ("startup_s", _number),
    "termination-seconds": ("termination_s", _number_or_never),
    "controller": ("recreate", partial(_one_of, "recreate", "none")),
    "recreate-after-seconds": ("recreate_after_s", _number),
    "recreate-limit": ("recreate_limit", _number),
    "recreations": ("recreations", lambda key, text: int(_number(key, text))),
    "cleanup-after-seconds": ("cleanup_after_s", _number),
}
"""Each annotation: the field that it sets, and what reads it."""
