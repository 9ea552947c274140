"""What the NVML child does, step by step, in the test's own process over a simulated node."""

import pynvml
import pytest

from agent.nvml.caller import Caller
from agent.nvml.inventory import (
    driver_branch,
    enumerate_gpus,
)
from agent.nvml.messages import Calling, Fault, Tier
from agent.nvml.poller import Poller
from hack.sim.driver import NODES

SIMULATED = sorted(path.stem for path in NODES.glob("*.yaml"))


class Sense:
    """What the child does, step by step: enumerate, poll, wait; and what it said on the way."""

    def __init__(self, path):
        pynvml.nvmlInit()
        self.path = path
        self.said = []
        self.call = Caller(self.said.append)
        self.branch = driver_branch(pynvml.nvmlSystemGetDriverVersion())
        self.gpus = enumerate_gpus(self.call, [])
        self.poller = Poller(self.call, self.branch)

    def poll(self, gpu=0, tier=None, now=0.0):
        """The readings of one tier, or of all together."""
        tiers = Tier if tier is None else [tier]
        values = {}
        for one in tiers:
            values |= self.poller.poll(self.gpus[gpu], one, now).values
        return values

    def calls(self):
        return [message.call for message in self.said if isinstance(message, Calling)]

    def faults(self):
        return [(m.call, m.code, m.gpu) for m in self.said if isinstance(m, Fault)]


def on(*nodes):
    return pytest.mark.parametrize("sense", nodes, indirect=True)
