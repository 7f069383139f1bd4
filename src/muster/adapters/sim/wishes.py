"""How a pod wants to be played: annotations `sim.muster.dev/...` that only the embedded cluster reads.

run-seconds      how long it runs once it has started; without it, until somebody deletes it
exit             `failed`: its run ends badly
start-seconds    how long it takes from its bind to its start
leave-seconds    how long it really takes to go once it is deleted, whatever its grace period; or `never`
controller       `recreate`: somebody makes it anew under the same name when it is lost
recreate-after   that many seconds later
recreate-limit   at most that often
recreated        how often that happened already; written by the controller
cleanup-after    that many seconds after it was marked for a soft eviction somebody else's operator deletes it; else nobody does
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from math import inf

from muster.adapters.kube.refs import Stored
from muster.adapters.sim.manifests import BadManifest

PREFIX = "sim.muster.dev/"
RECREATED = f"{PREFIX}recreated"
CONTROLLER = f"{PREFIX}controller"
_LIMIT = f"{PREFIX}recreate-limit"

_NAMES = (
    "run-seconds",
    "exit",
    "start-seconds",
    "leave-seconds",
    "controller",
    "recreate-after",
    "recreate-limit",
    "recreated",
    "cleanup-after",
)


@dataclass(frozen=True, slots=True)
class Wishes:
    """None: nothing was said. A span of `inf` is for ever."""

    run_s: float | None = None
    fails: bool = False
    start_s: float | None = None
    leave_s: float | None = None
    recreate: bool = False
    recreate_after_s: float = 0.0
    recreate_limit: float = inf
    recreated: int = 0
    cleanup_after_s: float | None = None


NO_WISHES = Wishes()


def wishes_of(manifest: Stored) -> Wishes:
    """Raises BadManifest where a wish is not understood."""
    annotations = manifest["metadata"].get("annotations") or {}
    said = {key.removeprefix(PREFIX): value for key, value in annotations.items() if key.startswith(PREFIX)}
    if not said:
        return NO_WISHES
    for name in said:
        if name not in _NAMES:
            close = get_close_matches(name, _NAMES, n=1) or _NAMES
            raise BadManifest(f"metadata.annotations[{PREFIX}{name}]: no such wish; write for example {PREFIX}{close[0]}")
    return Wishes(
        run_s=_number(said, "run-seconds"),
        fails=_word(said, "exit", known=("failed", "succeeded")) == "failed",
        start_s=_number(said, "start-seconds"),
        leave_s=inf if said.get("leave-seconds") == "never" else _number(said, "leave-seconds"),
        recreate=_word(said, "controller", known=("recreate", "none")) == "recreate",
        recreate_after_s=_number(said, "recreate-after") or 0.0,
        recreate_limit=_or(_number(said, "recreate-limit"), inf),
        recreated=int(_number(said, "recreated") or 0),
        cleanup_after_s=_number(said, "cleanup-after"),
    )


def once_more(manifest: Stored, *, for_ever: bool) -> dict[str, str]:
    """The annotations by which a pod that leaves comes back when it is gone: this time, or whenever it is lost."""
    if for_ever:
        return {CONTROLLER: "recreate"}
    return {CONTROLLER: "recreate", _LIMIT: str(wishes_of(manifest).recreated + 1)}


def _number(said: dict[str, str], name: str) -> float | None:
    if name not in said:
        return None
    try:
        found = float(said[name])
    except ValueError:
        found = -1.0
    if not 0 <= found < inf:
        raise BadManifest(f"metadata.annotations[{PREFIX}{name}]: {said[name]!r} is no number from 0 on; write for example 30")
    return found


def _word(said: dict[str, str], name: str, *, known: tuple[str, ...]) -> str:
    word = said.get(name, known[-1])
    if word not in known:
        raise BadManifest(f"metadata.annotations[{PREFIX}{name}]: {word!r} is neither {' nor '.join(known)}")
    return word


def _or(found: float | None, default: float) -> float:
    return default if found is None else found
