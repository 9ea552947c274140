"""One node with eight GPUs and its agent: kernel lines and readings in, the real verdict out.

A machine that nothing happened to has no state and costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hack.fleet.signs import Signs
from rules.api.timestamps import format_time
from rules.catalog.signals import Signal
from rules.catalog.thresholds import DEFAULT_RULES
from rules.judge import observation as facts
from rules.judge.judge import judge, next_deadline
from rules.judge.restore import restore
from rules.judge.state import NodeState, initial
from rules.kernel_log.parse import parse_message
from rules.publish.publication import Difference, Identity, Publication, differs, publish
from rules.publish.verdict import verdict

GPUS: Final = 8
DRIVER: Final = "580.82.07"
_VENDOR: Final = 0x10DE
_3D_CONTROLLER: Final = 0x0302
_LINKS: Final = 18
SOUND: Final[dict[Signal, facts.Value]] = {
    Signal.PRESENCE: "present",
    Signal.RECOVERY_ACTION: 0,
    Signal.REMAP_FAILURE: 0,
    Signal.REMAP_PENDING: 0,
    Signal.ECC_UNCORRECTED_VOLATILE: 0,
    Signal.CLOCK_EVENT_REASONS: 0,
    Signal.PCIE_WIDTH: 16,
    Signal.PCIE_WIDTH_MAX: 16,
}


@dataclass(slots=True)
class Machine:
    """What is true of the node, and what its agent knows."""

    number: int
    name: str
    uid: str
    made_at: float
    driver: str = DRIVER
    boot: int = 1
    booted_at: float = 0.0
    annotations: dict[str, str] = field(default_factory=dict)
    ports_up: bool = True
    state: NodeState | None = None
    published: Publication | None = None
    values: dict[int, dict[Signal, facts.Value]] = field(default_factory=dict)
    """What GPUs read that are not sound."""
    gone: set[int] = field(default_factory=set)
    sequence: int = 0

    @property
    def boot_id(self) -> str:
        """The running boot."""
        return f"boot-{self.name}-{self.boot}"

    @property
    def pod_uid(self) -> str:
        """The agent's pod."""
        return f"agent-{self.name}"

    def pci(self, gpu: int) -> str:
        """A GPU's address as the kernel prints it."""
        return f"0000:{0x10 + gpu:02x}:00"

    def uuid(self, gpu: int) -> str:
        """A GPU's UUID."""
        return f"GPU-{self.number:08x}-0000-0000-0000-{gpu:012x}"

    # ------------------------------------------------------------------ what happens to it

    def show(self, signs: Signs, gpu: int, now: float) -> None:
        """A fault begins: the driver prints its lines, and readings change."""
        self._awake(now)
        for after, text in signs.lines:
            self._see(self._line(text, gpu, now + after), now + after)
        if signs.values:
            self.values[gpu] = {**SOUND, **signs.values}
        if signs.gone:
            self.gone.add(gpu)
        self.ports_up = self.ports_up and not signs.port_down

    def repaired(self, now: float) -> None:
        """Parts replaced and the node booted: a new agent takes up what the last one published,
        and a person says that the repair was made.
        """
        self.values.clear()
        self.gone.clear()
        self.ports_up = True
        if self.published is None:
            return
        self.boot += 1
        self.booted_at = now
        self.sequence = 0
        self.annotations["gpuward.io/repaired"] = f"{format_time(now)} parts replaced"
        self.state = restore(
            self.published.status,
            now,
            boot_id=self.boot_id,
            node_uid=self.uid,
            node_name=self.name,
        )
        self._look(now)

    def poll(self, now: float) -> None:
        """Look at the bus, the host and every GPU."""
        if self.state is None:
            return
        while (due := next_deadline(self.state)) is not None and due < now:
            self._see(facts.Tick(at=due), due)
            if next_deadline(self.state) == due:
                break
        self._see(self._bus(now), now)
        self._see(self._host(now), now)
        for gpu in range(GPUS):
            self._see(self._reading(gpu, now), now)

    def publish(self, now: float) -> bool:
        """Publish where there is news; whether there was."""
        if self.state is None:
            return False
        judged = verdict(self.state, now, DEFAULT_RULES)
        identity = Identity(
            agent_version="0.1.0",
            rules_version="1",
            pod=f"gpuward/{self.pod_uid}",
            pod_uid=self.pod_uid,
        )
        new = publish(self.state, judged, now, identity)
        if differs(self.published, new) is not Difference.NOW:
            return False
        self.published = new
        return True

    def _line(self, text: str, gpu: int, now: float) -> facts.KernelLineSeen:
        parsed = parse_message(text.format(pci=self.pci(gpu)).encode())
        if parsed is None:
            raise ValueError(f"not a line of the driver: {text}")
        self.sequence += 1
        return facts.KernelLineSeen(
            at=now, sequence=self.sequence, boot_id=self.boot_id, lookback=False, line=parsed
        )

    # ------------------------------------------------------------------ its data sources

    def _awake(self, now: float) -> None:
        if self.state is None:
            start = max(self.booted_at, now - 600.0)
            self.state = initial(start, boot_id=self.boot_id, node_name=self.name)
            self._look(start)

    def _look(self, now: float) -> None:
        self._see(self._node(now), now)
        self._see(self._host(now), now)
        self._see(self._bus(now), now)
        self._see(
            facts.SourceChanged(
                at=now, source=facts.SourceName.KERNEL_LOG, state=facts.SourceState.UP
            ),
            now,
        )
        self._see(
            facts.SourceChanged(
                at=now, source=facts.SourceName.WORKLOADS, state=facts.SourceState.UP
            ),
            now,
        )
        up = facts.SourceState.UP
        self._see(facts.SourceChanged(at=now, source=facts.SourceName.NVML, state=up), now)
        self._see(self._inventory(now), now)
        self._see(self._topology(now), now)
        for gpu in range(GPUS):
            self._see(self._reading(gpu, now), now)

    def _see(self, seen: facts.Observation, now: float) -> None:
        if self.state is not None:
            self.state, _ = judge(self.state, seen, now, DEFAULT_RULES)

    def _node(self, now: float) -> facts.NodeSeen:
        return facts.NodeSeen(
            at=now,
            name=self.name,
            uid=self.uid,
            boot_id=self.boot_id,
            annotations=dict(self.annotations),
            labels={"node.kubernetes.io/instance-type": "sim-8"},
        )

    def _host(self, now: float) -> facts.HostSeen:
        return facts.HostSeen(
            at=now,
            booted_at=self.booted_at or self.made_at - 86_400.0,
            product_uuid=f"dmi-{self.number}",
            cpu_numa_nodes=(0, 1),
            ports=(facts.NetworkPort(name="mlx5_0/1", active=self.ports_up, infiniband=True),),
        )

    def _bus(self, now: float) -> facts.PciSeen:
        return facts.PciSeen(
            at=now,
            functions=tuple(
                facts.PciFunction(
                    address=f"{self.pci(gpu)}.0",
                    vendor=_VENDOR,
                    device_class=_3D_CONTROLLER,
                    driver="nvidia",
                    config_space_ok=gpu not in self.gone,
                )
                for gpu in range(GPUS)
            ),
        )

    def _inventory(self, now: float) -> facts.Inventory:
        return facts.Inventory(
            at=now,
            driver=self.driver,
            gpus=tuple(
                facts.GpuSeen(
                    uuid=self.uuid(gpu),
                    index=gpu,
                    pci=f"{self.pci(gpu)}.0",
                    product="NVIDIA H100 80GB HBM3",
                    architecture=9,
                    mig_mode=False,
                )
                for gpu in range(GPUS)
            ),
        )

    def _topology(self, now: float) -> facts.TopologySeen:
        each = range(GPUS)
        return facts.TopologySeen(
            at=now,
            gpus=tuple(self.uuid(gpu) for gpu in each),
            links=tuple(tuple("X" if a == b else "NV18" for b in each) for a in each),
            remotes=(("switch",) * _LINKS,) * GPUS,
            numa=tuple(gpu * 2 // GPUS for gpu in each),
        )

    def _reading(self, gpu: int, now: float) -> facts.Readings:
        values = self.values.get(gpu, SOUND)
        if gpu in self.gone:
            values = {Signal.PRESENCE: "lost"}
        return facts.Readings(at=now, gpu=self.uuid(gpu), values=values, pci=self.pci(gpu))
