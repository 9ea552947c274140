"""Build the GPUEvidence object of a session from the agent's state.

Built once per session, when the quarantine taint appears on the node. Lines are escaped and cut,
readings are written as text. If not everything fits, `missing` names what was left out.
"""

import re
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from rules.api import health, names, timestamps
from rules.api.evidence import (
    DIGEST_KEY,
    MAX_EVIDENCE_GPUS,
    MAX_EVIDENCE_OBJECT_BYTES,
    MAX_KERNEL_BYTES,
    MAX_MISSING,
    MAX_READINGS,
    EvidenceGpu,
    EvidenceReading,
    EvidenceSpec,
    digest,
)
from rules.api.health import HealthStatus
from rules.catalog import reasons
from rules.catalog.signals import Signal
from rules.judge.observation import TopologySeen, Value
from rules.judge.state import GpuView, NodeState
from rules.kernel_log import parse
from rules.text.printable import count, printable

_LINE_CHARS: Final = 1024
_VALUE_CHARS: Final = 256
_HEAD_BYTES: Final = MAX_KERNEL_BYTES // 4
"""The beginning of an error storm shows its cause, its end the result: the middle is left out."""
_WORTH: Final = re.compile(
    rb"NVRM|nvidia|nouveau|pcieport|pciehp|AER:|DPC:|PCIe Bus Error|\bpci[ _]|vfio|IOMMU|DMAR"
    rb"|mce: |Hardware Error|gpuward"
)
"""What a vendor needs in addition to the driver's lines: the PCI bus, its errors, the IOMMU."""


def worth_keeping(message: bytes) -> bool:
    """Return whether a kernel message is about the driver, the GPUs or the PCI bus."""
    return _WORTH.search(message) is not None or parse.parse_message(message) is not None


class KernelMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One complete message of the kernel log."""

    text: bytes
    at: float | None = None
    """Wall time in seconds; None if the log has none."""
    since_boot_s: float | None = None
    """Seconds of the kernel's clock."""


class KernelExcerpt:
    """The relevant lines of a log of any length, within `MAX_KERNEL_BYTES`."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._head_bytes = 0
        self._tail: deque[str] = deque()
        self._tail_bytes = 0
        self.dropped = 0

    def add(self, message: KernelMessage) -> None:
        """Add the next message; messages that are not relevant are skipped."""
        if not worth_keeping(message.text):
            return
        line = _line(message)
        size = len(line.encode()) + 1
        if not self._tail and self._head_bytes + size <= _HEAD_BYTES:
            self._head.append(line)
            self._head_bytes += size
            return
        self._tail.append(line)
        self._tail_bytes += size
        while self._tail_bytes > MAX_KERNEL_BYTES - _HEAD_BYTES - _LINE_CHARS:
            self._tail_bytes -= len(self._tail.popleft().encode()) + 1
            self.dropped += 1

    @property
    def text(self) -> str:
        """The excerpt, one message per line."""
        gap = [f"[... {count(self.dropped, 'line')} left out ...]"] if self.dropped else []
        return "\n".join([*self._head, *gap, *self._tail])


def _line(message: KernelMessage) -> str:
    text = message.text[: 4 * _LINE_CHARS].decode(errors="backslashreplace")
    clock = "" if message.since_boot_s is None else f"[{message.since_boot_s:.6f}] "
    at = "" if message.at is None else f"{timestamps.format_micro_time(message.at)} "
    return f"{at}{clock}{printable(text)[:_LINE_CHARS]}"


def evidence(
    session: str,
    state: NodeState,
    status: HealthStatus,
    kernel: KernelExcerpt,
    now: float,
    *,
    missing: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the body of the object to create; `status` is the published form of `state`."""
    reported = {uuid for i in status.incidents if i.active for uuid in i.gpus}
    views = sorted(state.gpus.values(), key=lambda v: (v.seen.uuid not in reported, v.seen.index))
    lacking = [*missing]
    if len(views) > MAX_EVIDENCE_GPUS:
        lacking.append(f"{len(views) - MAX_EVIDENCE_GPUS} GPUs have no room")
    spec = EvidenceSpec(
        session=session[:253],
        node_name=state.node.name[:253],
        node_uid=status.node_uid,
        boot_id=status.boot_id,
        taken_at=timestamps.format_time(now),
        agent_version=status.agent_version,
        rules_version=status.rules_version,
        driver_version=status.driver_version,
        virtualization=status.virtualization,
        sources=status.sources,
        gpus=tuple(_gpu(view, state) for view in views[:MAX_EVIDENCE_GPUS]),
        topology=status.topology,
        incidents=status.incidents,
        kernel_log=kernel.text,
        kernel_lines_dropped=kernel.dropped,
        missing=_bounded(lacking),
    )
    body: dict[str, Any] = health.plain(_fitted(spec, lacking))
    body[DIGEST_KEY] = digest(body)
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUEvidence",
        "metadata": {"name": session},
        "spec": body,
    }


def _bounded(missing: Iterable[str]) -> tuple[str, ...]:
    return tuple(printable(each)[:_VALUE_CHARS] for each in missing)[:MAX_MISSING]


def _fitted(spec: EvidenceSpec, lacking: list[str]) -> EvidenceSpec:
    """Return the spec within the size limit; readings of GPUs without incidents go first."""
    gpus = list(spec.gpus)
    gone = 0
    while _size(spec) > MAX_EVIDENCE_OBJECT_BYTES and gone < len(gpus):
        gone = min(len(gpus), gone + max(1, len(gpus) // 8))
        kept = len(gpus) - gone
        cut = [*gpus[:kept], *(msgspec.structs.replace(gpu, readings=()) for gpu in gpus[kept:])]
        missing = _bounded([f"the readings of {count(gone, 'GPU')} have no room", *lacking])
        spec = msgspec.structs.replace(spec, gpus=tuple(cut), missing=missing)
    return spec


def _size(spec: EvidenceSpec) -> int:
    return len(msgspec.json.encode(spec))


def _gpu(view: GpuView, state: NodeState) -> EvidenceGpu:
    seen = view.seen
    readings = sorted((str(signal), value) for signal, value in view.values.items())
    return EvidenceGpu(
        uuid=_text(seen.uuid, 96),
        index=seen.index,
        pci=_text(seen.pci, 16),
        above=tuple(_text(each, 16) for each in state.bridges.get(view.pci, ())[:8]),
        module_id="" if seen.module_id is None else str(seen.module_id),
        serial=_text(seen.serial, 64),
        product=_text(seen.product, 96),
        board=_text(seen.board, 64),
        vbios=_text(seen.vbios, 64),
        inforom=_text(str(view.values.get(Signal.INFOROM_IMAGE) or ""), 64),
        read_at=timestamps.format_time(view.read_at) if view.read_at else "",
        recovery_action=reasons.recovery_action_name(view.action, state.branch),
        links=_links(seen.uuid or view.pci, state.topology),
        readings=tuple(
            EvidenceReading(signal=signal, value=_text(_spelled(value), _VALUE_CHARS))
            for signal, value in readings[:MAX_READINGS]
        ),
    )


def _links(gpu: str, topology: TopologySeen | None) -> tuple[str, ...]:
    """Return the connection to each other GPU, then the remote end of each link."""
    if topology is None or gpu not in topology.gpus:
        return ()
    row = topology.gpus.index(gpu)
    joined = topology.links[row] if row < len(topology.links) else ()
    remotes = topology.remotes[row] if row < len(topology.remotes) else ()
    found = [f"to {peer}: {link}" for peer, link in zip(topology.gpus, joined, strict=False)]
    found += [f"link {number}: {remote}" for number, remote in enumerate(remotes) if remote]
    return tuple(_text(each, 160) for each in found[:128])


def _spelled(value: Value) -> str:
    if value is None:
        return "not supported"
    if isinstance(value, tuple):
        return " ".join("-" if each is None else str(each) for each in value)
    return str(value)


def _text(text: str, most: int) -> str:
    return printable(text)[:most]
