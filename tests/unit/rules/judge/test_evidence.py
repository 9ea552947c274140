"""GPUEvidence: complete, bounded, escaped, with a stable digest."""

import hashlib
import json
from typing import Any

import pytest

from rules.api.evidence import (
    MAX_EVIDENCE_OBJECT_BYTES,
    MAX_KERNEL_BYTES,
    EvidenceView,
    digest,
)
from rules.judge.evidence import KernelExcerpt, KernelMessage, evidence, worth_keeping
from rules.judge.state import NodeState
from tests.support.scenario.judgement_world import World


def excerpt(*lines: bytes) -> KernelExcerpt:
    kept = KernelExcerpt()
    for number, line in enumerate(lines):
        kept.add(KernelMessage(text=line, at=1_760_000_000.0 + number, since_boot_s=float(number)))
    return kept


def body(world: World, kernel: KernelExcerpt | None = None, **more: Any) -> dict[str, Any]:
    state: NodeState = world.state
    status = world.published().status
    kept = kernel or excerpt()
    return evidence("n0-1234abcd", state, status, kept, world.now, **more)


def test_it_has_the_identity_and_last_readings_of_each_gpu() -> None:
    world = World().start()
    world.xid(79)
    made = body(world, excerpt(b"NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus."))
    spec = made["spec"]
    assert made["kind"] == "GPUEvidence"
    assert made["metadata"] == {"name": "n0-1234abcd"}, "no owner: it outlives the node"
    assert spec["session"] == "n0-1234abcd"
    assert len(spec["gpus"]) == len(world.state.gpus)
    first = spec["gpus"][0]
    assert first["uuid"] == spec["incidents"][0]["gpus"][0], "the accused come first"
    assert {"uuid", "pci", "readings"} <= first.keys()
    assert all(isinstance(each["value"], str) for each in first["readings"])
    assert "2025-10-09T08:53:20.000000Z [0.000000] NVRM: Xid" in spec["kernelLog"]


def test_the_digest_is_over_the_rest_as_sorted_json() -> None:
    made = body(World().start())
    spec = json.loads(json.dumps(made))["spec"]
    claimed = spec.pop("sha256")
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(text.encode()).hexdigest() == claimed == digest(made["spec"])
    view = EvidenceView(metadata={}, spec=made["spec"])  # type: ignore[arg-type]
    assert view.intact
    assert not EvidenceView(metadata={}, spec={**made["spec"], "nodeName": "x"}).intact  # type: ignore[arg-type]
    assert not EvidenceView(metadata={}, spec={}).intact  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (b"NVRM: loading NVIDIA UNIX x86_64 Kernel Module", True),
        (b"pcieport 0000:40:01.1: AER: Uncorrectable (Fatal) error message received", True),
        (b"pci 0000:4e:00.0: BAR 1: assigned [mem 0x1000]", True),
        (b"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal", True),
        (b"DMAR: DRHD: handling fault status reg 2", True),
        (b"EXT4-fs (sda1): mounted filesystem", False),
        (b"usb 1-1: new high-speed USB device", False),
        (b"", False),
    ],
)
def test_lines_of_driver_gpus_and_bus_are_kept(line: bytes, kept: bool) -> None:
    assert worth_keeping(line) is kept


def test_hostile_lines_are_escaped_and_cut() -> None:
    kept = excerpt(b"NVRM: \x1b[2J\xff\xfe evil \xe2\x80\xae" + b"A" * 10_000)
    assert kept.text.isprintable()
    assert "\\x1b[2J" in kept.text
    assert len(kept.text) < 1200


def test_of_a_flood_the_beginning_and_the_end_stay() -> None:
    lines = [b"NVRM: first"] + [b"NVRM: storm %d " % n + b"x" * 150 for n in range(5000)]
    kept = excerpt(*lines, b"NVRM: last")
    assert len(kept.text.encode()) <= MAX_KERNEL_BYTES
    assert "NVRM: first" in kept.text
    assert kept.text.endswith("NVRM: last")
    assert kept.dropped > 3000
    assert f"[... {kept.dropped} lines left out ...]" in kept.text


def test_what_does_not_fit_is_listed_as_missing() -> None:
    world = World(gpus=8).start()
    view = next(iter(world.state.gpus.values()))
    for signal in view.values:
        assert len(str(signal)) <= 64
    made = body(world, missing=["the kernel log is off\x1b"])
    assert made["spec"]["missing"] == ["the kernel log is off\\x1b"]
    assert len(json.dumps(made)) < MAX_EVIDENCE_OBJECT_BYTES
