"""The demo's stage: a simulated cluster with a fleet on it, real agents and a real remediator.

Everything that decides runs as its own process and speaks HTTP to the simulated API server; only
the server, the kubelets and the scripted nodes live in the demo's own process.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import yaml

from hack.sim.cluster.client import Object
from hack.sim.cluster.controllers.pods import is_ready
from hack.sim.cluster.controllers.suite import ClusterControllers
from hack.sim.cluster.fleet.fleet import (
    CNI,
    DCGM_EXPORTER,
    DEVICE_PLUGIN,
    Budget,
    Fleet,
    Gang,
    Pool,
    Serving,
    apply_fleet,
    node_names,
)
from hack.sim.cluster.fleet.fleet_health import FleetHealth
from hack.sim.cluster.resource import CONFIGMAPS, LEASES, NODES
from hack.sim.cluster.server import SimulatedApiServer
from hack.sim.demo.devices import Devices
from hack.sim.demo.ledger import Ledger, until
from hack.sim.demo.mending import Machines, TestBench
from hack.sim.demo.programs import ANY_PORT, DemoAgent, Program
from hack.sim.manifests import post_manifests, read_manifests, with_component
from rules.api.names import LABEL_GPUS
from rules.policy.policy import Policy
from rules.policy.reader import load_policy

CHECKOUT = Path(__file__).resolve().parents[3]
POLICY_FILE = Path(__file__).with_name("policy.yaml")
MACHINES_FILE = Path(__file__).with_name("machines.yaml")
COMPONENTS = (
    "devices",
    "repair-cluster-api",
    "repair-node-conditions",
    "repair-reset-gpu-job",
    "validate",
)
"""Components of the installation that the demo's policy needs."""
PLAYED = frozenset({"ConfigMap", "DaemonSet", "Deployment", "PodTemplate"})
"""Kinds of the installation that the demo plays itself: the programs run as processes."""
NAMESPACE = "gpuward"
SOLO = "solo"
MINIMUM_NODES = 20
MOST_NODES = 300
"""Server, kubelets and scheduler are one process: with more of them it is the demo that is slow.
"""
READY_WITHIN_S = 60.0
"""Eight programs start at once; on a busy machine with two cores that alone takes half a minute.
"""
PID_FILE = "pid"
_PREFIX = "gpuward-demo-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Which node plays what."""

    training: str
    program: str
    memory: str
    hot: str
    worn: str
    linked: str
    protected: str
    by_hand: str
    """Runs no agent: an operator takes it out and gives it back."""
    rack: tuple[str, ...]
    reset: str
    climbs: str
    tested: str
    dra: str
    """Offers its GPUs through DRA."""

    @property
    def with_agents(self) -> tuple[str, ...]:
        """The nodes that run a real agent."""
        return (
            self.training, self.program, self.memory, self.hot, self.worn, self.linked,
            self.protected, self.dra,
        )  # fmt: skip


def cast_of(names: Sequence[str], protected: str) -> Cast:
    """Who plays what among these nodes: no node in two acts, `protected` where the one pod is."""
    train = [n for n in names if n.startswith("train")]
    serve = [n for n in names if n.startswith("serve")]
    return Cast(
        training=train[0],
        program=train[1],
        memory=serve[0],
        hot=serve[1],
        worn=serve[7],
        linked=serve[2],
        protected=protected,
        by_hand=serve[5],
        rack=tuple(train[2:8]),
        reset=serve[3],
        climbs=serve[4],
        tested=serve[6],
        dra=next(n for n in names if n.startswith("dra")),
    )


def fleet(nodes: int) -> Fleet:
    """Half of the nodes train in gangs of two, the others serve; one service must not move, and
    one node offers its GPUs through DRA.
    """
    training = (nodes - 1) // 2
    serving = nodes - training - 3
    gangs = tuple(
        Gang(name=f"llm-{number}", pods=2, pool="train") for number in range((training - 1) // 2)
    )
    return Fleet(
        pools=(
            Pool(name="train", nodes=training, rack_size=8),
            Pool(name="serve", nodes=serving, rack_size=8),
            Pool(name="solo", nodes=2, gpus=8, rack_size=8),
            Pool(name="dra", nodes=1, gpus=0),
        ),
        workloads=(
            CNI,
            DEVICE_PLUGIN,
            DCGM_EXPORTER,
            *gangs,
            Serving(
                name="chat", replicas=serving * 4, pool="serve", gpus=1,
                budget=Budget(max_unavailable="25%"),
            ),
            Serving(
                name=SOLO, replicas=1, pool="solo", gpus=8, budget=Budget(min_available=1),
            ),
        ),
    )  # fmt: skip


def demo_policy(path: Path = POLICY_FILE) -> Policy:
    """The policy the remediator gets; the acts measure against it."""
    loaded = load_policy(yaml.safe_load(path.read_text()))
    if not isinstance(loaded, Policy):
        raise RuntimeError("; ".join(p.sentence(path.name) for p in loaded))
    return loaded


def installed() -> list[Object]:
    """What an installation adds to a cluster: roles, admission
    policies, network policies, priority classes.
    """
    made = CHECKOUT / "daemonset"
    found = read_manifests(made / "base")
    for component in COMPONENTS:
        found = with_component(found, made / "components" / component)
    return [obj for obj in found if obj["kind"] not in PLAYED]


def sweep(folders: Path | None = None) -> None:
    """Remove the folders of demos that were killed with SIGKILL, from the folder of temporary
    files by default.
    """
    for folder in (folders or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*"):
        try:
            pid = int((folder / PID_FILE).read_text())
            os.kill(pid, 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except (OSError, ValueError):
            continue  # another user's, one that just begins, or one that lives


class Stage:
    """`async with Stage(nodes=24) as stage`: everything is up and healthy inside."""

    def __init__(self, *, nodes: int, policy_file: Path = POLICY_FILE) -> None:
        self._policy_file = policy_file
        self._fleet = fleet(max(nodes, MINIMUM_NODES))
        self._stack = AsyncExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self.kubeconfig = self.folder / "kubeconfig"
        self.agents: dict[str, DemoAgent] = {}
        self.policy = demo_policy(policy_file)
        self._led = False

    async def __aenter__(self) -> Self:
        try:
            await self._build()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _build(self) -> None:
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / PID_FILE).write_text(str(os.getpid()))
        self.server = await self._stack.enter_async_context(SimulatedApiServer())
        self.server.write_kubeconfig(self.kubeconfig)
        client = self.server.client
        kinds = [CHECKOUT / "daemonset" / "crds", MACHINES_FILE]
        await post_manifests(client, [each for path in kinds for each in read_manifests(path)])
        await post_manifests(client, installed(), namespace=NAMESPACE)
        # So that `kubectl gpuward plan` and `why` judge by the policy that is in force.
        policy = {"policy.yaml": self._policy_file.read_text()}
        metadata = {"name": "gpuward-policy", "namespace": NAMESPACE}
        await client.create(CONFIGMAPS, {"metadata": metadata, "data": policy}, NAMESPACE)
        self.controllers = await self._stack.enter_async_context(ClusterControllers(client))
        await apply_fleet(client, self._fleet, datetime.now(UTC))
        self.ledger = Ledger(self.controllers.caches)
        if not await until(self._pods_ready, within_s=READY_WITHIN_S):
            raise RuntimeError(f"the fleet's pods did not start within {READY_WITHIN_S:.0f} s")
        on_solo = (
            pod["spec"]["nodeName"]
            for (_, name), pod in self.ledger.pods.items()
            if name.startswith(f"{SOLO}-")
        )
        self.cast = cast_of(self._fleet.node_names(), next(on_solo))
        self.machines = Machines(client)
        await self.machines.back(self.ledger.nodes[self.cast.memory])
        self.bench = TestBench(client, self.ledger, NAMESPACE)
        await self.bench.install()
        testing = asyncio.create_task(self.bench.run())
        self._stack.callback(testing.cancel)
        self.health = FleetHealth(client, lambda: datetime.now(UTC))
        scripted = [n for n in self._fleet.node_names() if n not in self.cast.with_agents]
        await self.health.all_healthy(scripted)
        # Agents without a pod beat; without it the fleet would fall silent after twelve minutes.
        beating = asyncio.create_task(self.health.run())
        self._stack.callback(beating.cancel)
        await self._start_programs()

    async def _start_programs(self) -> None:
        self._stack.push_async_callback(self._stop_programs)
        for number, node in enumerate(self.cast.with_agents):
            boot = self.ledger.nodes[node]["status"]["nodeInfo"]["bootID"]
            agent = DemoAgent(node, number, self.folder, self.kubeconfig, boot)
            self.agents[node] = agent
            agent.program.start()
        self.devices = Devices(self.server.client, self.ledger, self.cast.dra)
        gpus = self.agents[self.cast.dra].uuids
        await self.devices.install(gpus)
        allocating = asyncio.create_task(self.devices.run())
        self._stack.callback(allocating.cancel)
        self.remediator = Program(
            ["remediator.cli", "run", "--policy", str(self._policy_file), "--kubeconfig",
             str(self.kubeconfig), "--listen", ANY_PORT, "--page-listen", ANY_PORT],
            self.folder / "remediator.log",
            {},
        )  # fmt: skip
        self.remediator.start()
        ready = await until(self._agents_ready, within_s=READY_WITHIN_S)
        if not ready:
            silent = [n for n in self.cast.with_agents if not self._agent_ready(n)]
            raise RuntimeError(
                f"agents {silent} were not ready within {READY_WITHIN_S:.0f} s\n"
                + "\n".join(self.agents[node].program.tail() for node in silent)
            )

        if not await until(
            lambda: len(self.devices.holders()) == len(gpus), within_s=READY_WITHIN_S
        ):
            raise RuntimeError(f"the pods that claim GPUs of {self.cast.dra} did not start")
        if not await until(lambda: self._led, within_s=READY_WITHIN_S, step=self._look_for_leader):
            raise RuntimeError(f"the remediator does not lead\n{self.remediator.tail()}")
        # It listens before it campaigns.
        self.page_url = f"http://127.0.0.1:{self.remediator.logged('page_port')}"

    async def _look_for_leader(self) -> None:
        leases, _ = await self.server.client.list(LEASES, NAMESPACE)
        self._led = any(lease["spec"].get("holderIdentity") for lease in leases)

    def _agent_ready(self, node: str) -> bool:
        labels = self.ledger.nodes[node]["metadata"].get("labels") or {}
        return LABEL_GPUS in labels and self.ledger.healthy(node) == "True"

    def _pods_ready(self) -> bool:
        # A pod that is not Running yet may be evicted past its PDB: the API server lets it go.
        pods = self.ledger.pods.values()
        return len(pods) == self._fleet.pod_count() and all(map(is_ready, pods))

    def _agents_ready(self) -> bool:
        return all(self._agent_ready(node) for node in self.cast.with_agents)

    async def _stop_programs(self) -> None:
        programs = [self.remediator, *(agent.program for agent in self.agents.values())]
        await asyncio.gather(*(asyncio.to_thread(program.stop) for program in programs))

    async def reboot_scripted(self, node: str) -> None:
        """The machine of a node without a real agent reboots, and its GPUs are well."""
        await self.controllers.kubelets.reboot(node)
        await self.health.recreated(node)

    async def replace(self, node: str) -> str:
        """Node and Machine go, and the spare that joins in their place is well; its name."""
        agent = self.agents.pop(node)
        await asyncio.to_thread(agent.program.stop)
        (pool,) = (each for each in self._fleet.pools if node in node_names(each))
        spare = await self.machines.replace(node, replace(pool, nodes=pool.nodes + 1))
        await self.health.healthy(spare)
        return spare

    async def plugin(self, *arguments: str) -> tuple[int, str]:
        """What an operator types: `kubectl gpuward ARGUMENTS`; exit status and what it prints."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "remediator.kubectl.cli", "--kubeconfig", str(self.kubeconfig),
            *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
        return process.returncode or 0, output.decode(errors="replace").strip()

    async def reboot(self, node: str, *, repaired: dict[str, Any]) -> None:
        """The machine reboots with the part replaced."""
        agent = self.agents[node]
        await asyncio.to_thread(agent.program.stop)
        await self.controllers.kubelets.reboot(node)
        fresh = await self.server.client.get(NODES, node)
        agent.edit(repaired)
        agent.reboot(fresh["status"]["nodeInfo"]["bootID"])
