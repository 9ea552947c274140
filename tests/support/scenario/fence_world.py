"""A marked node that fell silent with pods on it, and a host whose power can be taken and held.

The provider switches the power off a minute after it is asked, and on again when nobody holds it
off; the machine boots two minutes later. Kubernetes ends the pods of a silent node that carries
the out-of-service taint, and evicts those of one that speaks. What must never be is kept in
`harm`.
"""

from __future__ import annotations

from typing import Any

from tests.support.scenario.provider_world import HELD_OFF, ProviderWorld, host_of
from tests.support.scenario.repair_world import NODE

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
NOTE = "gpuward.io/out-of-service"
OFF_AFTER_S, BOOT_S = 60.0, 120.0


class FenceWorld(ProviderWorld):
    """One silent node, marked for a fault, with three pods and one of a DaemonSet."""

    def __init__(
        self,
        does: str = "heals",
        *,
        taint: bool = True,
        adapter: str = "Metal3",
        fence: dict[str, Any] | None = None,
        **repair: Any,
    ) -> None:
        wanted = {"after": "10m", "outOfService": taint} if fence is None else fence
        super().__init__(adapter, "PowerCycle", does, fence=wanted or None, **repair)
        self.harm: list[str] = []
        """What must never be, as it was seen."""
        self.tainted: list[float] = []
        """When the taint came on."""
        self._asked_at: float | None = None
        self._on_at: float | None = None
        self.alive = True
        """Whether the machine runs, whatever anybody says of it."""

    @property
    def host(self) -> dict[str, Any]:
        """The BareMetalHost of the node."""
        return self.objects[host_of(NODE)]

    @property
    def held_off(self) -> bool:
        """Whether somebody asks for its power to be off."""
        return HELD_OFF in self.host["metadata"].get("annotations", {})

    def out_of_service(self, node: str = NODE) -> bool:
        """Whether the taint is on the node."""
        taints = self.nodes[node]["spec"].get("taints") or []
        return any(taint["key"] == OUT_OF_SERVICE for taint in taints)

    def fall_silent(self, *, pods: int = 3, fault: bool = True) -> None:
        """A fault is seen and marked, then the whole machine hangs; a PDB allows no eviction."""
        for index in range(pods):
            self.add_pod(f"train-{index}", NODE, gpus=1)
        self.add_pod("daemon", NODE, owner=("apps/v1", "DaemonSet", "ds"), labels={"app": "ds"})
        self.add_daemonset_owner("DaemonSet-team-a-ds")
        self.add_pdb("web", minAvailable=3)
        if fault:
            self.fault()
        self.run(40, step=20)
        self.go_silent()

    def go_silent(self, node: str = NODE) -> None:
        """Kubelet and agent say nothing any more."""
        self.set_ready(node, "Unknown")
        self.silence(node)

    def speak_again(self, node: str = NODE) -> None:
        """The network is back: nothing had happened to the machine."""
        self.set_ready(node, "True")
        self.speak(node)

    # ------------------------------------------------------------------ everybody else

    def _controllers(self) -> None:
        super()._controllers()
        if self.adapter == "Metal3":
            self._power()
        self._out_of_service()

    def _act(self) -> None:
        """Nothing at once: `_power` follows the host."""

    def _power(self) -> None:
        if self.held_off and self._asked_at is None:
            self._asked_at = self.now
        if not self.held_off:
            self._asked_at = None
        due = self._asked_at is not None and self.now - self._asked_at >= OFF_AFTER_S
        if due and self.does == "lies":
            self._shows(powered_on=False)
        elif due and self.does not in {"hangs", "gives up"} and self.alive:
            self.alive = False
            self.go_silent()
            self._shows(powered_on=False)
        if not self.alive and not self.held_off:
            self._on_at = self.now if self._on_at is None else self._on_at
            self._shows(powered_on=True)
            if self.now - self._on_at >= BOOT_S:
                self._boots()

    def _boots(self) -> None:
        self.alive, self._on_at = True, None
        self.reboot(NODE)
        self.speak_again()
        if self.does == "heals":
            self.close_all(NODE)

    def _shows(self, *, powered_on: bool) -> None:
        if self.host["status"]["poweredOn"] is not powered_on:
            self.host["status"]["poweredOn"] = powered_on
            self.touch(self.host)

    def _out_of_service(self) -> None:
        """What Kubernetes makes of the taint; a machine that runs must never carry it for long."""
        if not self.out_of_service():
            return
        if not self.tainted or self.now - self.tainted[-1] > 3600:
            self.tainted.append(self.now)
        if self.alive and self.does != "lies" and self._on_at is None:
            ready = self.nodes[NODE]["status"]["conditions"][0]["status"]
            if ready == "Unknown":
                self.harm.append(f"out of service while it runs, at {self.now}")
        for key, pod in list(self.pods.items()):
            if pod["spec"]["nodeName"] == NODE and not pod["spec"].get("tolerations"):
                del self.pods[key]
