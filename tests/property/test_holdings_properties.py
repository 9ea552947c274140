"""A pod is never reported as not holding a GPU that any source reports for it."""

from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rules.api.health import HeldDevice, Holder, Holders
from rules.api.pods import PodView
from rules.api.resource_slices import ResourceSliceView, node_devices
from rules.api.workloads import ResourceClaimView
from rules.drain import holdings
from rules.text import tolerant
from tests.support.cluster.slices import gpu_device, mig_device, slice_spec, slice_view

NODES = ["n0", "n1"]
DEVICES = {f"gpu-{n}": f"GPU-{n}" for n in range(3)} | {
    f"gpu-{n}-mig-1g10gb-19-0": f"GPU-{n}" for n in range(3)
}
"""What a device is called, and its GPU."""
WHEN = ["", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"]
CLAIMS = ["a", "b", "x"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "gpu-0", "GPU-0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["uuid", "parentUUID", "string", "device"]), inner)
    ),
)


@dataclass(frozen=True)
class Node:
    pod: PodView
    claims: dict[str, ResourceClaimView | None]
    holders: Holders
    slices: list[ResourceSliceView]


def addresses() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "driver": st.sampled_from(["gpu.nvidia.com", "dra.example.com"]),
            "pool": st.sampled_from(NODES),
            "device": st.sampled_from(sorted(DEVICES)),
        }
    )


@st.composite
def nodes(draw: Any) -> Node:
    some_claims = draw(st.lists(st.sampled_from(["a", "b"]), unique=True))
    requests = draw(st.integers(0, 3))
    status: dict[str, Any] = {"phase": draw(st.sampled_from(["Running", "Pending"]))}
    if started := draw(st.sampled_from(WHEN)):
        status["startTime"] = started
    if draw(st.booleans()):
        status["extendedResourceClaimStatus"] = {"resourceClaimName": "x"}
    limits = {"nvidia.com/gpu": str(requests)}
    spec = {
        "containers": [{"name": "c", "resources": {"limits": limits}}],
        "resourceClaims": [{"name": name, "resourceClaimName": name} for name in some_claims],
    }
    meta = {"name": "p", "namespace": "t", "uid": "u"}
    pod = msgspec.convert({"metadata": meta, "spec": spec, "status": status}, PodView)
    claims: dict[str, ResourceClaimView | None] = {}
    for name in draw(st.lists(st.sampled_from(CLAIMS), unique=True)):
        results = draw(st.lists(addresses(), max_size=3))
        made = {"status": {"allocation": {"devices": {"results": results}}}}
        claims[name] = draw(st.sampled_from([None, msgspec.convert(made, ResourceClaimView)]))
    entries = draw(
        st.lists(
            st.builds(
                Holder,
                namespace=st.just("t"),
                pod=st.sampled_from(["p", "q"]),
                gpus=st.lists(st.sampled_from(sorted(set(DEVICES.values()))), max_size=2).map(
                    tuple
                ),
                devices=st.lists(
                    addresses().map(lambda found: HeldDevice(**found)), max_size=2
                ).map(tuple),
            ),
            max_size=3,
        )
    )
    holders = Holders(read_at=draw(st.sampled_from(WHEN)), pods=tuple(entries))
    shown = [n for n in range(3) if draw(st.booleans())]
    slices = [slice_view("n0", gpu_device(n), mig_device(n, 0), count=len(shown)) for n in shown]
    return Node(pod, claims, holders, slices)


def reported(node: Node) -> set[str]:
    """The GPUs that a source reports for the pod, where this node has the device."""
    found: list[tuple[str, str, str]] = []
    gpus: set[str] = set()
    for name in {*(c.name for c in node.pod.spec.resource_claims), *(
        ["x"] if node.pod.status.extended_resource_claim_status else []
    )}:  # fmt: skip
        claim = node.claims.get(name)
        results = claim.results if claim is not None else ()
        found += [(r.driver, r.pool, r.device) for r in results]
    if node.pod.status.start_time and node.pod.status.start_time < node.holders.read_at:
        for holder in node.holders.pods:
            if holder.pod == "p":
                gpus |= set(holder.gpus)
                found += [(d.driver, d.pool, d.device) for d in holder.devices]
    return gpus | {
        DEVICES[device]
        for driver, pool, device in found
        if (driver, pool) == ("gpu.nvidia.com", "n0")
    }


@given(nodes())
def test_a_gpu_that_a_source_reports_is_held(node: Node) -> None:
    counted = sum(
        len(claim.gpus) if (claim := node.claims.get(name)) is not None else 1
        for name in {c.name for c in node.pod.spec.resource_claims}
    )
    pod = msgspec.structs.replace(node.pod, claimed_gpus=counted)
    entries = holdings.entries_of(pod, node.holders.read_at, holdings.listed_by_pod(node.holders))
    devices = node_devices("n0", node.slices)
    held = holdings.held_by(pod, entries, node.claims, devices)
    assert held is None or reported(node) <= held
    assert held is None or pod.gpus == 0 or held


@given(st.lists(JSON, max_size=3), JSON, JSON)
def test_any_slice_and_claim_is_read(specs: list[Any], attributes: Any, results: Any) -> None:
    named = {"name": "gpu-0", "attributes": attributes}
    found = [
        tolerant.understand(msgspec.json.encode({"spec": spec}), ResourceSliceView).value
        for spec in (*specs, slice_spec("n0", named) | {"devices": [named, results]})
    ]
    devices = node_devices("n0", [view for view in found if view is not None])
    raw = {"status": {"allocation": {"devices": {"results": results}}}}
    claim = tolerant.understand(msgspec.json.encode(raw), ResourceClaimView).value
    meta = {"name": "p", "namespace": "t", "uid": "u"}
    spec = {"resourceClaims": [{"name": "a", "resourceClaimName": "a"}]}
    pod = msgspec.convert({"metadata": meta, "spec": spec}, PodView)
    held = holdings.held_by(pod, (), {"a": claim}, devices)
    assert held is None or all(held)
