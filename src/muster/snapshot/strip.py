"""Removes all fields on which no decision depends: images, variables, unknown annotations, messages in a status.

What stays are the fields of the decoder's structs, and the few that the simulator needs besides.
"""

from __future__ import annotations

from typing import Final

import msgspec

from muster.kube.read import names, wire
from muster.kube.read.decoder import struct_types
from muster.kube.read.decoding_problems import Problems
from muster.kube.read.lenient_decoding import DECODE_ERRORS, decode_leniently
from muster.kube.read.object_references import BUDGET, POD, VOLUME_CLAIM, GroupKind, Manifest
from muster.sim.pod_behaviour import BEHAVIOUR_PREFIX

_STATUS: Final = {"PodGroup": ("phase", "scheduleStartTime"), "Queue": ("state",), "ElasticQuota": ()}
"""The other status fields are computed again."""
_EXTRA_FIELDS: Final[dict[GroupKind, tuple[tuple[str, ...], ...]]] = {
    POD: (("spec", "terminationGracePeriodSeconds"),),
    BUDGET: (("spec", "minAvailable"), ("spec", "maxUnavailable")),
    VOLUME_CLAIM: (("status", "phase"),),
}
"""Fields that the simulator needs and no decision depends on."""
_UNCONSTRAINING: Final = frozenset(info.encode_name for info in msgspec.structs.fields(wire.UnconstrainingFields))
"""Fields of a pod that are known to the decoder only so that they are not called unknown."""


def strip_object(manifest: Manifest, *, kind: GroupKind) -> Manifest:
    struct_type = struct_types()[kind]
    try:
        kept: Manifest = msgspec.to_builtins(msgspec.convert(manifest, struct_type))
    except DECODE_ERRORS:
        kept = msgspec.to_builtins(decode_leniently(manifest, wanted=struct_type, problems=Problems()))
        if kind[1] in _STATUS:
            # Invalid fields affect decisions as well. Only custom resources can have them, and those have no images or variables.
            kept["spec"] = manifest.get("spec")
    kept["metadata"].pop("resourceVersion", None)
    if kind == POD:
        kept["spec"] = {field: part for field, part in kept.get("spec", {}).items() if field not in _UNCONSTRAINING}
    _keep_annotations(kept["metadata"])
    if kind[1] in _STATUS:
        _keep_status(kept, _STATUS[kind[1]])
    for path in _EXTRA_FIELDS.get(kind, ()):
        _copy_field(path, manifest, kept)
    return {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], **kept}


def _keep_annotations(metadata: Manifest) -> None:
    known = {
        key: value
        for key, value in metadata.pop("annotations", {}).items()
        if key in names.ALL_KEYS or key.startswith(BEHAVIOUR_PREFIX)
    }
    if known:
        metadata["annotations"] = known


def _keep_status(kept: Manifest, fields: tuple[str, ...]) -> None:
    status = kept.pop("status", {})
    known = {field: status[field] for field in fields if field in status}
    if known:
        kept["status"] = known


def _copy_field(path: tuple[str, ...], manifest: Manifest, kept: Manifest) -> None:
    head, field = path
    value = (manifest.get(head) or {}).get(field)
    if value is not None:
        kept.setdefault(head, {})[field] = value
