"""A reset in the GPU Operator's GPUCluster mode: DCGM and the DRA kubelet plugin leave."""

from typing import Final

import pytest

from rules.api.names import DEPLOYED, PAUSED_BY_US, PREFIX_GPU_DEPLOY
from rules.api.repair_writes import WriteRepairObject
from tests.support.repair.job_world import JobWorld
from tests.support.scenario.repair_world import NODE
from tests.support.scenario.session_world import kill_points

PLUGIN: Final = "dra-driver"
HOLDERS: Final = ("dcgm-dra", "dcgm-exporter-dra")
STAY: Final = ("driver", "dra-validator", "operands", "mig-manager")
FUTURE: Final = "a-later-operand"
LEAVES_S: Final = 20.0


def key(name: str) -> str:
    return f"{PREFIX_GPU_DEPLOY}{name}"


class ClusterWorld(JobWorld):
    """DaemonSet pods with ResourceClaims, which need the kubelet plugin in order to terminate."""

    def __init__(self, does: str = "heals") -> None:
        self.stuck = False
        """Whether the pod of DCGM never terminates."""
        self.began: dict[str, float] = {}
        """When the kubelet began to end a pod."""
        super().__init__("ResetGPUJob", "ResetGPU", does)
        names = (PLUGIN, *HOLDERS, *STAY, FUTURE)
        self.labels.update(dict.fromkeys(map(key, names), DEPLOYED))
        self.labels[key("nvsm")] = "false"
        self.before = dict(self.labels)
        self.fault()

    def run_controllers(self) -> None:
        for name in (PLUGIN, *HOLDERS, "dra-validator"):
            self._operand(name)
        super().run_controllers()

    def _operand(self, name: str) -> None:
        at = ("gpu-operator", name)
        deployed = self.labels[key(name)] == DEPLOYED
        if deployed and at not in self.pods:
            claims = [] if name == PLUGIN else [{"name": "g", "resourceClaimName": name}]
            self.add_pod(
                name, NODE, namespace="gpu-operator", owner=("apps/v1", "DaemonSet", name),
                nodeSelector={key(name): DEPLOYED}, resourceClaims=claims,
            )  # fmt: skip
        elif not deployed and at in self.pods:
            self._end(at)

    def _end(self, at: tuple[str, str]) -> None:
        began = self.began.setdefault(at[1], self.now)
        plugin = ("gpu-operator", PLUGIN) in self.pods
        stays = at[1] != PLUGIN and (self.stuck or not plugin)
        if self.now - began >= LEAVES_S and not stays:
            del self.pods[at], self.began[at[1]]

    @property
    def restored(self) -> bool:
        return self.labels == self.before | {
            k: v for k, v in self.labels.items() if not k.startswith(PREFIX_GPU_DEPLOY)
        }

    def patches(self) -> list[set[str]]:
        """Return the labels that each accepted write paused."""
        bodies = (w.body["metadata"] for w in self.writes(WriteRepairObject) if w.verb == "patch")
        paused = ({k for k, v in b.get("labels", {}).items() if v == PAUSED_BY_US} for b in bodies)
        return [found for found in paused if found]


def test_every_operand_leaves_and_the_dra_driver_last() -> None:
    world = ClusterWorld()
    world.until(lambda: world.labels[key(PLUGIN)] == PAUSED_BY_US)
    assert not {name for _, name in world.pods} & set(HOLDERS), "they need it in order to end"
    world.until(lambda: world.held("jobs"))
    others = {*map(key, HOLDERS), key(FUTURE), *_classic(world)}
    assert world.patches() == [others, {key(PLUGIN)}]
    assert all(world.labels[key(name)] == DEPLOYED for name in STAY)
    assert world.labels[key("nvsm")] == "false"
    world.run(1800, step=5)
    (attempt,) = world.sessions(NODE)[0].status.repair
    assert attempt.state == "Proven"
    assert set(attempt.cleared) == {f"{each}=true" for each in (*others, key(PLUGIN))}
    assert world.restored


def _classic(world: JobWorld) -> set[str]:
    return {k for k in world.labels if k.rpartition(".")[2] in {"device-plugin", "dcgm-exporter"}}


def test_a_pod_that_does_not_terminate_is_named_and_the_plugin_stays() -> None:
    world = ClusterWorld()
    world.stuck = True
    world.run(120)
    assert "ResetGPU waits for gpu-operator/dcgm-dra" in world.message(NODE)
    assert world.labels[key(PLUGIN)] == DEPLOYED
    world.run(1200, step=5)
    (attempt,) = world.sessions(NODE)[0].status.repair
    assert attempt.state == "Failed"
    assert "waited for gpu-operator/dcgm-dra" in attempt.proof
    assert world.held("jobs") == []
    assert world.restored


@pytest.mark.parametrize("does", ["heals", "refuses"])
def test_a_leader_killed_at_any_write_restores_every_operand(does: str) -> None:
    plain = ClusterWorld(does)
    end = plain.now + 600
    died = kill_points(plain, lambda: plain.run(500, step=5))
    first = next(i for i, (write, _) in enumerate(died) if isinstance(write, WriteRepairObject))
    for write, world in died[first - 2 :]:
        world.run(end - world.now, step=5)
        assert world.steps_of() == plain.steps_of(), write
        assert world.restored, write


def test_a_label_that_another_client_sets_back_is_not_changed_again() -> None:
    world = ClusterWorld("hangs")
    world.until(lambda: world.held("jobs"))
    world.labels[key(PLUGIN)] = DEPLOYED
    world.touch(world.nodes[NODE])
    world.run(120, step=5)
    assert world.labels[key(PLUGIN)] == DEPLOYED
    assert len(world.patches()) == 2
