"""The steps of the NVML child, in the process of the test, over a simulated node."""

from typing import Any

import msgspec
import pynvml
import pytest

from agent.daemon.judgement import Judgement, NodeSettings
from agent.nvml.inventory import Absent, Caller, enumerate_gpus
from agent.nvml.messages import Calling, NvmlStatus
from agent.nvml.poller import Poller, Tier
from agent.nvml.reads import topology
from hack.sim.driver import NODES, functions_of
from hack.sim.driver.node import parse
from hack.sim.driver.store import load
from rules.catalog.signals import Signal, driver_branch
from rules.catalog.thresholds import DEFAULT_RULES
from rules.judge.health_status import assess
from rules.judge.observation import (
    CallFailed,
    Inventory,
    Observation,
    PciSeen,
    Readings,
    SourceChanged,
    SourceName,
    SourceState,
)

BOOTED_LONG_AGO = 1_800_000_000.0

SIMULATED = sorted(path.stem for path in NODES.glob("*.yaml"))


class Collector:
    """The steps of the child (enumerate, poll, wait) and the messages that it sent."""

    def __init__(self, path):
        pynvml.nvmlInit()
        self.path = path
        self.sent: list[Any] = []
        self.call = Caller(self.sent.append)
        self.branch = driver_branch(pynvml.nvmlSystemGetDriverVersion()) or 0
        self.gpus = enumerate_gpus(self.call, [])
        self.poller = Poller(self.call, self.branch)

    def poll(self, gpu=0, tier=None, now=0.0):
        """The readings of one tier, or of all together."""
        tiers = Tier if tier is None else [tier]
        values: dict[Signal, Any] = {}
        for one in tiers:
            values |= self.poller.poll(self.gpus[gpu], one, now)
        return values

    def calls(self):
        return [message.call for message in self.sent if isinstance(message, Calling)]

    def faults(self):
        return [(m.call, m.code, m.gpu) for m in self.sent if isinstance(m, CallFailed)]


class Judged:
    """Judgement in virtual time over the messages of the collector."""

    def __init__(self, path):
        self.path = path
        self.now = BOOTED_LONG_AGO
        who = NodeSettings(node_name="n1", expected_gpus=None, boot_id="b1")
        self.judgement = Judgement(who, DEFAULT_RULES, lambda: self.now)
        self.judgement.remember(None)
        self.now += 3600
        self.poll()

    def poll(self):
        """Observe the PCI bus of the same description."""
        functions = tuple(functions_of(parse(load(self.path))))
        self.judgement.observe(PciSeen(at=self.now, functions=functions))

    def take(self, message):
        """Observe a fact, or the source state that the agent derives from an NvmlStatus."""
        if isinstance(message, NvmlStatus):
            message = SourceChanged(
                at=self.now, source=SourceName.NVML, state=message.state, reason=message.reason
            )
        if isinstance(message, Observation):
            self.judgement.observe(msgspec.structs.replace(message, at=self.now))

    def health(self):
        found = assess(self.judgement.state, self.now)
        return str(found.health), found.reason

    def findings(self):
        return {
            f"{i.row.reason} {i.row.severity} {i.row.level} {i.row.action}"
            for i in self.judgement.state.incidents
            if i.active
        }


def polled(collector, judged, rounds=4, before_each=lambda number: None):
    """Poll all GPUs for some rounds and return the last readings of GPU 3.

    `before_each` edits the node.
    """
    judged.judgement.observe(
        SourceChanged(at=judged.now, source=SourceName.NVML, state=SourceState.UP)
    )
    devices = tuple(gpu.device for gpu in collector.gpus)
    judged.take(Inventory(at=judged.now, driver="580.95.05", gpus=devices))
    judged.take(topology(collector.call, collector.gpus, collector.branch))
    values: dict[Signal, Any] = {}
    for number in range(rounds):
        before_each(number)
        judged.now += 15
        judged.poll()
        for gpu in collector.gpus:
            for tier in Tier:
                collector.sent.clear()
                read = collector.poller.poll(gpu, tier, judged.now)
                reported = {s: None if isinstance(v, Absent) else v for s, v in read.items()}
                uuid, pci = gpu.device.uuid, gpu.device.pci
                readings = Readings(at=judged.now, gpu=uuid, pci=pci, values=reported)
                for message in (*collector.sent, readings):
                    judged.take(message)
                if gpu.device.index == 3:
                    values |= read
    return values


def on(*nodes):
    return pytest.mark.parametrize("collector", nodes, indirect=True)
