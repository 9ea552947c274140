"""The agent benchmark: what it subtracts from the agent's memory."""

from hack.bench.agent_processes import simulator_kib
from hack.bench.remediator_replica import ROOT

NODE = ROOT / "hack" / "sim" / "driver" / "nodes" / "h100-8-nvswitch.yaml"


def test_the_simulated_driver_takes_some_of_the_agents_memory() -> None:
    assert 0 < simulator_kib(NODE) < 40 * 1024
