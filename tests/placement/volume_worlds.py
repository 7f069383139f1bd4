"""Small worlds with volumes, drawn by hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st
from tests.placement.placement_worlds import HOST, PLACED_PHASES, ZONE, Case

from muster.model.events import ClusterObject
from muster.model.node import Node
from muster.model.pod import ApiFlavour, Membership, Phase, Pod, PodSignature
from muster.model.pod_constraints import LabelSelector, NodeTerm, Operator, Requirement
from muster.model.resource_amounts import Resources
from muster.model.volume import NO_PROVISIONER, CsiNode, PersistentVolume, StorageClass, VolumeClaim

DRIVER = "disks.example.com"
CLASSES = ("local", "made", "now")
MODES = ("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany")


def in_zones(*zones: str) -> tuple[NodeTerm, ...]:
    return (NodeTerm((Requirement(ZONE, Operator.IN, zones),)),)


def on_nodes(*names: str) -> tuple[NodeTerm, ...]:
    return tuple(NodeTerm((Requirement(HOST, Operator.IN, (name,)),)) for name in names)


def _terms() -> st.SearchStrategy[tuple[NodeTerm, ...] | None]:
    return st.sampled_from(
        [None, in_zones("a"), in_zones("a", "b"), on_nodes("n0"), on_nodes("n1"), on_nodes("n0", "n2"), in_zones("b"), None, ()]
    )


@st.composite
def storage(draw: st.DrawFn) -> tuple[ClusterObject, ...]:
    things: list[ClusterObject] = [
        StorageClass("local", provisioner=NO_PROVISIONER, waits=True),
        StorageClass("made", provisioner=DRIVER, waits=True, topologies=draw(_terms()), is_default=draw(st.booleans())),
        StorageClass("now", provisioner=DRIVER, waits=False),
    ]
    claims = [draw(claim(f"c{number}")) for number in range(4)]
    for number in range(draw(st.integers(0, 6))):
        kept_for = draw(st.sampled_from([*[""] * 8, "blue/c0", "red/other"]))
        things.append(
            PersistentVolume(
                f"v{number}",
                capacity=draw(st.sampled_from([1, 2, 2, 3])),
                access_modes=draw(st.sampled_from([MODES, MODES, MODES[:1]])),
                storage_class=draw(st.sampled_from(["local", "local", "made"])),
                claim=kept_for,
                available=draw(st.integers(0, 9)) > 0,
                node_terms=draw(_terms()),
                driver=draw(st.sampled_from(["", DRIVER])),
                handle=draw(st.sampled_from(["h1", "h2", "h3"])),
                labels=draw(st.sampled_from([{}, {"disk": "fast"}])),
                mode=draw(st.sampled_from([*["Filesystem"] * 6, "Block"])),
            )
        )
    for number in range(draw(st.integers(0, 3))):
        things.append(CsiNode(f"n{number}", limits=draw(st.sampled_from([(), ((DRIVER, 0),), ((DRIVER, 1),), ((DRIVER, 2),)]))))
    return (*things, *(one for one in claims if one is not None))


@st.composite
def claim(draw: st.DrawFn, name: str) -> VolumeClaim | None:
    if draw(st.integers(0, 15)) == 0:
        return None
    return VolumeClaim(
        "blue",
        name,
        volume=draw(st.sampled_from([*[""] * 8, "v0", "v1", "gone"])),
        storage_class=draw(st.sampled_from([*["local"] * 6, *["made"] * 3, "now", None, "unknown"])),
        request=draw(st.sampled_from([0, 1, 2])),
        access_modes=tuple(draw(st.lists(st.sampled_from(MODES), min_size=1, max_size=1))),
        selector=draw(st.sampled_from([*[None] * 6, LabelSelector((Requirement("disk", Operator.IN, ("fast",)),))])),
        selected_node=draw(st.sampled_from([*[""] * 9, "n0"])),
        deleted=draw(st.integers(0, 19)) == 0,
    )


@st.composite
def volume_cases(draw: st.DrawFn) -> Case:
    nodes = tuple(
        Node(
            f"n{number}",
            allocatable=Resources.of({"cpu": draw(st.sampled_from([2000, 8000]))}),
            labels={HOST: f"n{number}", ZONE: draw(st.sampled_from(["a", "b"]))},
        )
        for number in range(draw(st.integers(1, 4)))
    )
    names = [each.name for each in nodes] + ["nowhere"]
    placed = tuple(
        (draw(pod(f"old{number}")), draw(st.sampled_from(names)), draw(st.sampled_from(PLACED_PHASES)))
        for number in range(draw(st.integers(0, 3)))
    )
    gang = Membership(ApiFlavour.VOLCANO, "gang")
    return Case(
        nodes=nodes,
        placed=placed,
        pending_pods=tuple(draw(pod(f"new{number}", gang)) for number in range(draw(st.integers(1, 4)))),
        things=draw(storage()),
        phase=draw(st.sampled_from([Phase.BINDING, Phase.NOMINATED])),
    )


@st.composite
def pod(draw: st.DrawFn, name: str, gang: Membership | None = None) -> Pod:
    claims = tuple(sorted(draw(st.sets(st.sampled_from(["c0", "c1", "c2", "c3"]), max_size=2))))
    kind = PodSignature(request=Resources.of({"cpu": 1000}), volume_claims=claims, namespace="blue" if claims else "")
    return Pod(name, "blue", name, kind, membership=gang)
