"""A node in virtual time for scenarios: observations in, incidents and health status out.

It feeds the very observations the agent's edge builds, sends the ticks that `next_deadline` asks
for, and can restart the agent from what it had published, reboot the node or lose the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace

from rules.api.timestamps import format_time
from rules.catalog.signals import Signal
from rules.catalog.thresholds import DEFAULT_RULES, Thresholds
from rules.judge.health_object import Identity, Publication, publish
from rules.judge.health_status import Assessment, assess
from rules.judge.incident import Incident
from rules.judge.judge import Change, judge, next_deadline
from rules.judge.observation import (
    CallFailed,
    DcgmSeen,
    EventKind,
    GpuEvent,
    GpuSeen,
    HostSeen,
    Inventory,
    KernelLineSeen,
    NetworkPort,
    NodeSeen,
    Observation,
    PciFunction,
    PciSeen,
    Readings,
    Service,
    SourceChanged,
    SourceName,
    SourceState,
    Tick,
    TopologySeen,
    Value,
)
from rules.judge.state import NodeState, initial
from rules.kernel_log.parse import parse_message
from tests.support.scenario.restarts import Step, reborn

START = 1_700_000_000.0
POLL_S = 15.0
SOUND: dict[Signal, Value] = {
    Signal.PRESENCE: "present",
    Signal.RECOVERY_ACTION: 0,
    Signal.REMAP_FAILURE: 0,
    Signal.REMAP_PENDING: 0,
    Signal.CLOCK_EVENT_REASONS: 0,
}


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-0000-0000-0000-000000000000"


def pci(index: int) -> str:
    return f"0000:{0x10 + index:02x}:00"


class World:
    """One node with `gpus` GPUs; `nvml=False` is a node where NVML was never switched on.

    `made` are the worlds of the running scenario, `steps` what happened to one and `states`
    how it was before each.
    """

    made: ClassVar[list[World]] = []

    def __init__(
        self,
        gpus: int = 8,
        *,
        driver: str = "580.82.07",
        architecture: int = 9,
        nvml: bool = True,
        virtualization: str = "none",
        switched: bool = True,
        rules: Thresholds = DEFAULT_RULES,
        boot_grace_over: bool = True,
    ) -> None:
        self.now = START
        self.rules = rules
        self.driver = driver
        self.virtualization = virtualization
        self.switched = switched
        self.nvml = nvml
        self.boot = "boot-1"
        self.booted_at = START - (86_400 if boot_grace_over else 10)
        self.sequence = 100
        self.counted = True
        self.inventory = [
            GpuSeen(
                uuid=uuid(index),
                index=index,
                pci=f"{pci(index)}.0",
                product="NVIDIA H100 80GB HBM3",
                architecture=architecture,
                mig_mode=False,
            )
            for index in range(gpus)
        ]
        self.values: list[dict[Signal, Value]] = [dict(SOUND) for _ in range(gpus)]
        self.config_space: dict[int, bool] = dict.fromkeys(range(gpus), True)
        self.annotations: dict[str, str] = {}
        self.labels: dict[str, str] = {"node.kubernetes.io/instance-type": "p5"}
        self.changes: list[Change] = []
        self.state: NodeState = initial(self.now, boot_id=self.boot, node_name="n1")
        self.states: list[NodeState] = []
        self.steps: list[Step] = []
        World.made.append(self)

    # what happens

    def see(self, observation: Observation) -> None:
        self.states.append(self.state)
        self.steps.append(Step(self.now, self.boot, self.rules, observation))
        self.state, changes = judge(self.state, observation, self.now, self.rules)
        self.changes += changes

    def start(self) -> World:
        """Start the data sources and poll once."""
        self.node()
        self.host()
        self.poll_pci()
        if self.nvml:
            self.source(SourceName.NVML, SourceState.UP)
            self.enumerate()
            self.poll()
        else:
            self.source(SourceName.NVML, SourceState.ABSENT, "Off")
        self.source(SourceName.KERNEL_LOG, SourceState.UP)
        return self

    def kernel(
        self,
        text: str,
        *,
        lookback: bool = False,
        at: float | None = None,
    ) -> KernelLineSeen:
        """Print a driver line; without `counted` the log is read through syslog(2)."""
        self.sequence += 1
        line = parse_message(text.encode())
        assert line is not None, f"not a line of gpuward: {text}"
        seen = KernelLineSeen(
            at=self.now if at is None else at,
            sequence=self.sequence if self.counted else -1,
            boot_id=self.boot,
            lookback=lookback,
            line=line,
        )
        self.see(seen)
        return seen

    def xid(self, number: int, gpu: int = 0, text: str = "", **how: object) -> KernelLineSeen:
        body = text or "pid=77, name=python, some text"
        return self.kernel(f"NVRM: Xid (PCI:{pci(gpu)}): {number}, {body}", **how)  # type: ignore[arg-type]

    def lines(self, script: str) -> World:
        """Play lines about GPU 0: `48` is an Xid, `->4` a new recovery action, `+2`
        lets two seconds pass.
        """
        asked = 0
        for step in script.split():
            if step.startswith("+"):
                self.advance(float(step))
            elif step.startswith("->"):
                self.action_line(int(step[2:]), before=asked)
                asked = int(step[2:])
            else:
                self.xid(int(step))
        return self

    def action_line(self, value: int, gpu: int = 0, before: int = 0) -> None:
        text = (
            f"GPU recovery action changed from {before:#x} (None) to {value:#x} (GPU Reset "
            "Required)"
        )
        self.xid(154, gpu, text)

    def event(self, kind: EventKind, data: int, gpu: int = 0, detail: str = "") -> None:
        self.see(GpuEvent(at=self.now, kind=kind, data=data, gpu=uuid(gpu), detail=detail))

    def asked(self, value: int, gpu: int = 0) -> None:
        """Change the recovery action: send its event, and poll it."""
        self.event(EventKind.RECOVERY_ACTION, 0, gpu)
        self.readings(gpu, recovery_action=value)

    def readings(self, gpu: int = 0, **values: Value) -> None:
        """Change the readings of one GPU and poll it once."""
        self.values[gpu] |= {Signal[name.upper()]: value for name, value in values.items()}
        self.poll_one(gpu)

    def will_read(self, gpu: int = 0, **values: Value) -> None:
        self.values[gpu] |= {Signal[name.upper()]: value for name, value in values.items()}

    def poll_one(self, gpu: int) -> None:
        self.see(Readings(at=self.now, gpu=uuid(gpu), values=dict(self.values[gpu]), pci=pci(gpu)))

    def poll(self) -> None:
        for gpu in self.inventory:
            self.poll_one(gpu.index)

    def failed_call(self, code: int, gpu: int | None = None, call: str = "nvmlDeviceGetX") -> None:
        named = uuid(gpu) if gpu is not None else ""
        self.see(CallFailed(at=self.now, call=call, code=code, gpu=named, of_driver=gpu is None))

    def enumerate(self) -> None:
        self.see(
            Inventory(
                at=self.now,
                driver=self.driver,
                virtualization=self.virtualization,
                gpus=tuple(self.inventory),
            )
        )
        count = len(self.inventory)
        links = 18 if self.switched else 0
        cell = f"NV{links}" if links else "SYS"
        self.see(
            TopologySeen(
                at=self.now,
                gpus=tuple(gpu.uuid for gpu in self.inventory),
                links=tuple(
                    tuple("X" if a == b else cell for b in range(count)) for a in range(count)
                ),
                remotes=tuple(("switch",) * links for _ in range(count)),
                numa=tuple(index * 2 // max(count, 1) for index in range(count)),
            )
        )

    def poll_pci(self) -> None:
        self.see(
            PciSeen(
                at=self.now,
                functions=tuple(
                    PciFunction(
                        address=f"{pci(index)}.0",
                        vendor=0x10DE,
                        device_class=0x0302,
                        driver="nvidia",
                        config_space_ok=ok,
                    )
                    for index, ok in self.config_space.items()
                ),
            )
        )

    def source(self, name: SourceName, state: SourceState, reason: str = "") -> None:
        self.see(SourceChanged(at=self.now, source=name, state=state, reason=reason))

    def node(self) -> None:
        self.see(
            NodeSeen(
                at=self.now,
                name="n1",
                uid="node-uid-1",
                boot_id=self.boot,
                annotations=dict(self.annotations),
                labels=dict(self.labels),
            )
        )

    def annotate(self, name: str, text: str) -> None:
        """Set an annotation of gpuward on the node."""
        self.annotations[f"gpuward.io/{name}"] = text
        self.node()

    def report_repaired(self, after_s: float = 0.0) -> None:
        self.annotate("repaired", f"{format_time(self.now + after_s)} new board")

    def release_gpus(self) -> None:
        """Request the release of the GPUs, and release them."""
        self.annotate("release-gpu", "swapping a card")
        self.source(SourceName.NVML, SourceState.RELEASED)

    def take_back(self) -> None:
        """Withdraw the request for the release."""
        del self.annotations["gpuward.io/release-gpu"]
        self.node()

    def host(
        self,
        ports: tuple[NetworkPort, ...] = (),
        running: set[Service] | None = None,
        *,
        ports_move: bool = False,
    ) -> None:
        """Poll the host; `running` None: no data about services."""
        services = {} if running is None else {each: each in running for each in Service}
        self.see(
            HostSeen(
                at=self.now,
                booted_at=self.booted_at,
                product_uuid="dmi-1",
                cpu_numa_nodes=(0, 1),
                services=services,
                ports=ports,
                ports_move=ports_move,
            )
        )

    def dcgm(self, gpus: Mapping[str, Mapping[Signal, Value]], **more: object) -> None:
        pages = {gpu: dict(values) for gpu, values in gpus.items()}
        self.see(DcgmSeen(at=self.now, gpus=pages, **more))  # type: ignore[arg-type]

    def advance(self, seconds: float, *, polling: bool = False) -> None:
        """Let time pass, with every tick that is due and optionally every poll."""
        end = self.now + seconds
        next_poll = self.now + POLL_S
        while True:
            due = next_deadline(self.state)
            step = min(due if due is not None else end + 1, next_poll if polling else end + 1)
            if step > end:
                break
            self.now = max(step, self.now)
            self.see(Tick(at=self.now))
            if polling and self.now >= next_poll:
                next_poll += POLL_S
                self.poll_pci()
                self.poll()
            assert next_deadline(self.state) != due or due is None or due > self.now, "no progress"
        self.now = end
        self.see(Tick(at=self.now))

    def pull(self, gpu: int) -> None:
        """Let the GPU fall off the bus: configuration space of all ones, NVML reports it lost."""
        self.config_space[gpu] = False
        self.values[gpu] = {Signal.PRESENCE: "lost"}

    # lives of the agent and the node

    def restart_agent(self) -> World:
        now, boot, rules = self.now, self.boot, self.rules

        def become(state: NodeState) -> NodeState:
            return reborn(state, now, boot, rules)

        self.states.append(self.state)
        self.steps.append(Step(now, boot, rules, None, become))
        self.state = become(self.state)
        return self

    def reboot(self) -> World:
        self.advance(120)
        number = int(self.boot.rpartition("-")[2]) + 1
        self.boot, self.sequence, self.booted_at = f"boot-{number}", 0, self.now
        return self.restart_agent()

    def replace_gpu(self, gpu: int) -> None:
        """Replace the card in a slot."""
        fresh = f"GPU-ffffffff-{gpu:04x}-0000-0000-000000000000"
        self.inventory[gpu] = replace(self.inventory[gpu], uuid=fresh)
        self.values[gpu] = dict(SOUND)
        self.config_space[gpu] = True

    # what is seen

    def assessment(self) -> Assessment:
        return assess(self.state, self.now, self.rules)

    def published(self) -> Publication:
        identity = Identity(agent_version="1", rules_version="1", pod="ns/p", pod_uid="u")
        return publish(self.state, self.assessment(), self.now, identity)

    @property
    def incidents(self) -> tuple[Incident, ...]:
        return self.state.incidents

    @property
    def active(self) -> tuple[Incident, ...]:
        return tuple(incident for incident in self.state.incidents if incident.active)

    @property
    def reasons(self) -> set[str]:
        return {incident.row.reason for incident in self.active}

    def only(self) -> Incident:
        assert len(self.active) == 1, [str(i.row.reason) for i in self.active]
        return self.active[0]

    def outcome(self) -> str:
        """Return `severity level action` of the only active incident."""
        row = self.only().row
        return f"{row.severity} {row.level} {row.action}"
