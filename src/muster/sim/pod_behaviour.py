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

from dataclasses import dataclass
from difflib import get_close_matches
from math import inf

from muster.kube.read.object_references import ManifestView
from muster.sim.api_kinds import BadManifest

BEHAVIOUR_PREFIX = "sim.muster.dev/"
RECREATED_ANNOTATION = f"{BEHAVIOUR_PREFIX}recreations"
CONTROLLER_ANNOTATION = f"{BEHAVIOUR_PREFIX}controller"
_RECREATE_LIMIT_ANNOTATION = f"{BEHAVIOUR_PREFIX}recreate-limit"

_KNOWN_ANNOTATIONS = (
    "run-seconds",
    "exit",
    "startup-seconds",
    "termination-seconds",
    "controller",
    "recreate-after-seconds",
    "recreate-limit",
    "recreations",
    "cleanup-after-seconds",
)


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
    annotations = manifest["metadata"].get("annotations") or {}
    annotated = {
        key.removeprefix(BEHAVIOUR_PREFIX): value for key, value in annotations.items() if key.startswith(BEHAVIOUR_PREFIX)
    }
    if not annotated:
        return DEFAULT_BEHAVIOUR
    for name in annotated:
        if name not in _KNOWN_ANNOTATIONS:
            close = get_close_matches(name, _KNOWN_ANNOTATIONS, n=1) or _KNOWN_ANNOTATIONS
            raise BadManifest(
                f"metadata.annotations[{BEHAVIOUR_PREFIX}{name}]: unknown annotation of the simulator; "
                f"write for example {BEHAVIOUR_PREFIX}{close[0]}"
            )
    return PodBehaviour(
        run_s=_number(annotated, "run-seconds"),
        run_fails=_choice(annotated, "exit", known=("failed", "succeeded")) == "failed",
        startup_s=_number(annotated, "startup-seconds"),
        termination_s=inf if annotated.get("termination-seconds") == "never" else _number(annotated, "termination-seconds"),
        recreate=_choice(annotated, "controller", known=("recreate", "none")) == "recreate",
        recreate_after_s=_number(annotated, "recreate-after-seconds") or 0.0,
        recreate_limit=_or_default(_number(annotated, "recreate-limit"), inf),
        recreations=int(_number(annotated, "recreations") or 0),
        cleanup_after_s=_number(annotated, "cleanup-after-seconds"),
    )


def recreate_annotations(manifest: ManifestView, *, always: bool) -> dict[str, str]:
    """The annotations by which a terminating pod is re-created after its end: once, or whenever it is lost."""
    if always:
        return {CONTROLLER_ANNOTATION: "recreate"}
    return {CONTROLLER_ANNOTATION: "recreate", _RECREATE_LIMIT_ANNOTATION: str(behaviour_of(manifest).recreations + 1)}


def _number(annotated: dict[str, str], name: str) -> float | None:
    if name not in annotated:
        return None
    try:
        found = float(annotated[name])
    except ValueError:
        found = -1.0
    if not 0 <= found < inf:
        raise BadManifest(
            f"metadata.annotations[{BEHAVIOUR_PREFIX}{name}]: {annotated[name]!r} is no number from 0 on; write for example 30"
        )
    return found


def _choice(annotated: dict[str, str], name: str, *, known: tuple[str, ...]) -> str:
    word = annotated.get(name, known[-1])
    if word not in known:
        raise BadManifest(f"metadata.annotations[{BEHAVIOUR_PREFIX}{name}]: {word!r} is neither {' nor '.join(known)}")
    return word


def _or_default(found: float | None, default: float) -> float:
    return default if found is None else found
