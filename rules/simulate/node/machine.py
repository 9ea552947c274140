"""One simulated node with eight GPUs and its agent: real lines and readings in, real verdicts out.

Time passes only where something can change: a machine that nothing happened to has no state at
all, and is looked at the first time something does. Then its GPUs are polled until the verdict has
come to rest, and the rules say themselves when time alone changes something.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from rules.api.health import HealthStatus
from rules.api.timestamps import format_time
from rules.catalog.reason import Severity
from rules.catalog.signals import Signal
from rules.catalog.thresholds import DEFAULT_RULES
from rules.judge import observation as facts
from rules.judge.judge import judge, next_deadline, wants_reread
from rules.judge.restore import restore
from rules.judge.state import NodeState, initial
from rules.judge.workload import Workload
from rules.kernel_log.parse import parse_message
from rules.publish.publication import Difference, Identity, Publication, differs, publish
from rules.publish.verdict import verdict
from rules.simulate.node.signs import Signs

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
    nvml: facts.SourceState = facts.SourceState.UP
    ports_up: bool = True
    agent_down: bool = False
    state: NodeState | None = None
    published: Publication | None = None
    values: dict[int, dict[Signal, facts.Value]] = field(default_factory=dict)
    """What GPUs read that are not sound."""
    gone: set[int] = field(default_factory=set)
    suspects: set[int] = field(default_factory=set)
    """GPUs that something was ever wrong with in this boot or the one before."""
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

    @property
    def deadline(self) -> float | None:
        """When time alone changes the verdict."""
        return next_deadline(self.state) if self.state is not None else None

    @property
    def rereads(self) -> bool:
        """Whether something was seen once and is looked at again at once."""
        return self.state is not None and wants_reread(self.state)

    # ------------------------------------------------------------------ what happens to it

    def show(self, signs: Signs, gpu: int) -> None:
        """A fault is there from now on; its lines are printed by `line`."""
        if not self.values and not self.gone:
            self.suspects.clear()
        self.suspects.add(gpu)
        if signs.values:
            self.values[gpu] = {**self.values.get(gpu, SOUND), **signs.values}
        if signs.gone:
            self.gone.add(gpu)
        if signs.port_down:
            self.ports_up = False

    def line(self, text: str, gpu: int, now: float, workload: Workload | None = None) -> None:
        """The kernel prints a line about one GPU."""
        seen = self.record(text, gpu, now)
        self._awake(now)
        self._see(seen, now)
        if workload is not None:
            self._see(facts.WorkloadSeen(at=now, record=seen, workload=workload), now)

    def record(self, text: str, gpu: int, now: float) -> facts.KernelLineSeen:
        """The record of a line, as the agent's reader hands it on."""
        parsed = parse_message(text.format(pci=self.pci(gpu)).encode())
        if parsed is None:
            raise ValueError(f"not a line of the driver: {text}")
        self.sequence += 1
        return facts.KernelLineSeen(
            at=now, sequence=self.sequence, boot_id=self.boot_id, lookback=False, line=parsed
        )

    def nvml_is(self, state: facts.SourceState, now: float, reason: str = "") -> None:
        """The driver hangs, or answers again."""
        self._awake(now)
        self.nvml = state
        self._see(
            facts.SourceChanged(at=now, source=facts.SourceName.NVML, state=state, reason=reason),
            now,
        )
        if state is facts.SourceState.UP:
            self._see(self._inventory(now), now)
            self.poll(now)

    def agent_starts(self, now: float) -> None:
        """A new agent takes up what the one before published, and looks."""
        if self.state is None:
            return
        before = self._status(now)
        self.state = restore(
            before, now, boot_id=self.boot_id, node_uid=self.uid, node_name=self.name
        )
        self._look(now)

    def repaired(self, now: float) -> None:
        """Parts replaced, GPUs reset, the node booted anew; everything is sound again."""
        self.values.clear()
        self.gone.clear()
        self.ports_up = True
        self.nvml = facts.SourceState.UP
        self.rebooted(now)

    def rebooted(self, now: float) -> None:
        """A new boot, whatever is wrong."""
        self.boot += 1
        self.booted_at = now
        self.sequence = 0
        self.agent_starts(now)

    def people_say_repaired(self, now: float) -> None:
        """What only a person's word closes."""
        self.annotations["gpuward.io/repaired"] = f"{format_time(now)} parts replaced"
        if self.state is not None:
            self._see(self._node(now), now)

    # ------------------------------------------------------------------ looking

    def poll(self, now: float) -> None:
        """One look at what may have changed: the bus, the host, the GPUs that something is or was
        wrong with, and a sound one beside them, which tells a dead GPU from a dead driver. What
        the others say changes nothing.
        """
        self._awake(now)
        self._see(self._bus(now), now)
        self._see(self._host(now), now)
        if self.nvml is facts.SourceState.UP:
            sound = next((gpu for gpu in range(GPUS) if gpu not in self.suspects), 0)
            for gpu in sorted({*self.suspects, sound}):
                self._see(self._reading(gpu, now), now)

    def poll_all(self, now: float) -> None:
        """One look at everything, as an agent has it every 15 s."""
        self.suspects.update(range(GPUS))
        self.poll(now)

    def host_look(self, now: float) -> None:
        """One look at the host alone."""
        self._awake(now)
        self._see(self._host(now), now)

    def tick(self, now: float) -> None:
        """Time passed."""
        if self.state is not None:
            self._see(facts.Tick(at=now), now)

    @property
    def grave(self) -> bool:
        """Whether an incident is active that is more than a record."""
        return self.state is not None and any(
            incident.active and incident.row.severity is not Severity.INFO
            for incident in self.state.incidents
        )

    def publication(self, now: float) -> Publication | None:
        """What the agent publishes now, where it differs from what it published last."""
        if self.state is None:
            return None
        judged = verdict(self.state, now, DEFAULT_RULES)
        identity = Identity(
            agent_version="0.1.0",
            rules_version="1",
            pod=f"gpuward/{self.pod_uid}",
            pod_uid=self.pod_uid,
        )
        new = publish(self.state, judged, now, identity)
        if differs(self.published, new) is not Difference.NOW:
            return None
        self.published = new
        return new

    def _status(self, now: float) -> HealthStatus:
        new = self.publication(now)
        if new is None and self.published is not None:
            return self.published.status
        return new.status if new is not None else HealthStatus()

    # ------------------------------------------------------------------ the senses

    def _awake(self, now: float) -> None:
        if self.state is None:
            start = max(self.booted_at, now - 600.0)
            self.state = initial(start, boot_id=self.boot_id, node_name=self.name)
            sound, gone, ports = self.values, self.gone, self.ports_up
            # What just began had not begun when the agent first looked.
            self.values, self.gone, self.ports_up = {}, set(), True
            self._look(start)
            self.values, self.gone, self.ports_up = sound, gone, ports

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
        self._see(facts.SourceChanged(at=now, source=facts.SourceName.NVML, state=self.nvml), now)
        if self.nvml is facts.SourceState.UP:
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
