"""A node that our own Jobs repair: its operator's pods, its agent that closes NVML, the Job's
program.

The agent's health status does not change while it has closed the driver, so a reset is seen
only after everybody is back.
"""

from typing import Any, Final

from rules.api.names import ANNOTATION_RELEASE_GPU, DEPLOYED, PAUSED_BY_US
from rules.api.timestamps import format_time
from rules.repair.ladder import Step
from tests.support.scenario.provider_world import OPERANDS, ProviderWorld, end_job, job_over
from tests.support.scenario.repair_world import NODE
from tests.support.scenario.server.apiserver import OWN

PLUGIN, EXPORTER = OPERANDS
ENDS: Final = ("heals", "refuses", "cut off", "vanishes", "hangs")


class JobWorld(ProviderWorld):
    """`does` is one of ENDS."""

    def __init__(self, name: str, step: str, does: str = "heals", **repair: Any) -> None:
        self.moved_at_reset: list[bool] = []
        """At each reset: whether everybody had been moved off."""
        self._reset_at: float | None = None
        self.pods_stay = False
        """Whether the node's kubelet does not report the end of its pods."""
        super().__init__(name, step, "heals", **repair)
        self.ending = does

    @property
    def job(self) -> dict[str, Any]:
        """The one Job there is."""
        (found,) = self.held("jobs")
        return found

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the node."""
        found: dict[str, str] = self.nodes[NODE]["metadata"]["labels"]
        return found

    @property
    def released(self) -> str | None:
        """The annotation that makes the agent close NVML."""
        found: str | None = self.nodes[NODE]["metadata"]["annotations"].get(ANNOTATION_RELEASE_GPU)
        return found

    @property
    def moved(self) -> bool:
        """Whether anything that moves others off is on the node."""
        return PAUSED_BY_US in self.labels.values() or self.released is not None

    @property
    def settled(self) -> bool:
        """Whether the node is as the operator had it."""
        return not self.moved and all(self.labels[key] == DEPLOYED for key in OPERANDS)

    def until(self, what: Any, limit_s: float = 600.0) -> None:
        """Go on in steps of a second until it is so."""
        end = self.now + limit_s
        while not what():
            assert self.now < end, self.message(NODE)
            self.run(1)

    def _pods_of_jobs(self) -> None:
        """The pod that each Job made: it runs as long as its Job, and its object stays with it."""
        jobs = {job["metadata"]["name"]: job for job in self.held("jobs")}
        for name, job in jobs.items():
            pod = job["spec"]["template"]
            if (OWN, f"{name}-pod") not in self.pods:
                self.add_pod(
                    f"{name}-pod",
                    pod["spec"]["nodeName"],
                    namespace=OWN,
                    owner=("batch/v1", "Job", name),
                    labels=pod["metadata"]["labels"],
                    tolerations=pod["spec"]["tolerations"],
                )
            if job_over(job) and not self.pods_stay:
                self.pods[OWN, f"{name}-pod"]["status"]["phase"] = "Succeeded"
        for key in [key for key in self.pods if key[0] == OWN]:
            if key[1].removesuffix("-pod") not in jobs and not self.pods_stay:
                del self.pods[key]

    def run_controllers(self) -> None:
        super().run_controllers()
        self._pods_of_jobs()
        if self._reset_at is None or self.released is not None:
            return
        for gpu in self.healths[NODE]["status"]["gpus"]:
            gpu["resetAt"] = format_time(self._reset_at)
        for incident in self.healths[NODE]["status"]["incidents"]:
            incident |= {"active": False, "closedBy": "Reset"}
        self.touch(self.healths[NODE])
        self._reset_at = None

    def _act(self) -> None:
        job = self.job
        match self.ending:
            case "heals" | "cut off" if self.step == Step.RESTART_NODE:
                self.reboot(NODE)
                self.close_all(NODE)
                if self.ending == "heals":
                    end_job(job, "Complete")
                else:
                    end_job(job, "Failed", "BackoffLimitExceeded")
            case "heals":
                paused = {self.labels.get(key) for key in OPERANDS} == {PAUSED_BY_US}
                self.moved_at_reset.append(paused and self.released is not None)
                self._reset_at = self.now
                end_job(job, "Complete")
            case "refuses":
                end_job(job, "Failed", "PodFailurePolicy")
            case "vanishes":
                self.objects = {p: o for p, o in self.objects.items() if o is not job}
        self.touch(job)
