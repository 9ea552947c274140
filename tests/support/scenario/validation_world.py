"""A cluster whose drained nodes are tested under load before they come back.

Job controller and kubelet run each test for two minutes and let it end in one of the ways that
tests end, or that somebody makes it seem to end.
"""

from __future__ import annotations

import json
from typing import Any

from rules.api.repair_writes import CreateTestJob
from rules.api.timestamps import format_time
from rules.session.validation.jobs import LABEL_JOB
from tests.support.scenario.repair_world import NODE, STEPS, RepairWorld
from tests.support.scenario.server.apiserver import OWN
from tests.support.scenario.session_world import ROOMY, policy_of

RUNS_S = 120.0
CHECK = {"id": "memory", "gpu": "GPU-n0-0", "value": 0.0, "unit": "wrong words"}


def says(verdict: str, **check: Any) -> str:
    """What the container of a test leaves in its termination log."""
    checks = [{**CHECK, "verdict": verdict, **check}]
    return json.dumps({"verdict": verdict, "message": f"It is {verdict}.", "checks": checks})


WORDS = {
    "passes": (0, says("pass")),
    "fails": (2, says("fail", value=7.0)),
    "is slow": (1, says("degraded", id="peer", value=30.0, unit="GB/s", floor=301.0)),
    "could not test": (3, says("unknown", id="start")),
    "fails without a check": (2, json.dumps({"verdict": "fail"})),
    "says nothing": (1, ""),
    "is no JSON": (0, "all good, believe me"),
    "speaks too long": (0, says("pass", note="x" * 5000)),
    "contradicts itself": (0, says("pass", floor=400.0, value=30.0)),
    "cannot start": (127, ""),
    "passes and is killed": (137, says("pass")),
}
"""Exit status and termination log of a test that ends by itself."""
HAPPENS = {"hangs", "vanishes", "is elsewhere", "is not ours", "is another", "reboots", "twice"}
"""What else becomes of a test."""


def validation_policy(repair: dict[str, Any] | None = None, **validate: Any) -> Any:
    """Enforce, with room in the budget, repair by Node conditions, and the builtin test."""
    ladder = {"mode": "Auto", "steps": STEPS} if repair is None else repair
    return policy_of(budget=ROOMY, repair=ladder, validate={"provider": "Job", **validate})


class ValidationWorld(RepairWorld):
    """A provider heals the node; `becomes` is what each test in turn ends in, the last for
    ever.
    """

    def __init__(
        self, *becomes: str, nodes: int = 3, does: str = "heals", **validate: Any
    ) -> None:
        super().__init__(nodes, does)
        self.policy = validation_policy(**validate)
        self.becomes = list(becomes or ("passes",))
        self.tested: list[str] = []
        """Jobs whose pod ran, in order."""
        self.templates["gpuward-validate"] = {
            "metadata": {"name": "gpuward-validate", "namespace": OWN, "uid": "template"},
            "template": {
                "metadata": {"labels": {"team": "sre"}},
                "spec": {
                    "containers": [{"name": "validate", "image": "gpuward:1"}],
                    "serviceAccountName": "gpuward-validate",
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                },
            },
        }

    def run(self, seconds: float, step: float = 10.0) -> None:
        """A test lasts for minutes: nothing happens in a second."""
        super().run(seconds, step)

    def run_until(self, node: str, phase: str, limit: float = 7200.0, step: float = 10.0) -> None:
        super().run_until(node, phase, limit, step)

    def _controllers(self) -> None:
        super()._controllers()
        for name, job in list(self.jobs.items()):
            if not job.get("status", {}).get("conditions"):
                self._run_job(name, job)

    def _run_job(self, name: str, job: dict[str, Any]) -> None:
        if name not in self.tested:
            self.tested.append(name)
            job["began"] = self.now
            job["becomes"] = self.becomes.pop(0) if len(self.becomes) > 1 else self.becomes[0]
            self._begin(name, job)
        waited = self.now - job["began"]
        if waited >= job["spec"]["activeDeadlineSeconds"]:
            self._end_job(job, "Failed", "DeadlineExceeded")
            self._drop_pods(job)
        elif waited >= RUNS_S:
            self._end(name, job)

    def _begin(self, name: str, job: dict[str, Any]) -> None:
        if job["becomes"] == "is not ours":
            job["metadata"]["annotations"] = {}
        spec = job["spec"]["template"]["spec"]
        for number in range(2 if job["becomes"] == "twice" else 1):
            node = "n1" if job["becomes"] == "is elsewhere" else spec["nodeName"]
            pod = f"{name}-{number}"
            self.add_pod(pod, node, namespace=OWN, owner=("batch/v1", "Job", name))
            made = self.pods[OWN, pod]
            made["metadata"]["ownerReferences"][0]["uid"] = job["metadata"]["uid"]
            labels = job["spec"]["template"]["metadata"]["labels"]
            made["metadata"]["labels"] = {**labels, LABEL_JOB: name}
            made["spec"] |= {k: v for k, v in spec.items() if k != "nodeName"}
            made["status"]["containerStatuses"][0]["name"] = spec["containers"][0]["name"]

    def _end(self, name: str, job: dict[str, Any]) -> None:
        becomes = job["becomes"]
        if becomes == "hangs":
            return
        if becomes == "vanishes":
            self.delete_job(name)
            return
        if becomes == "is another":
            job["metadata"]["uid"] = "of somebody else"
            becomes = "passes"
        if becomes == "reboots":
            job["becomes"] = "passes"
            self.reboot(job["spec"]["template"]["spec"]["nodeName"])
            return
        status, text = WORDS.get(becomes, WORDS["passes"])
        for pod in self.pods.values():
            if pod["metadata"]["labels"].get(LABEL_JOB) == name:
                ended = {"exitCode": status, "reason": "Completed" if status == 0 else "Error"}
                ended |= {"message": text} if text else {}
                state = {"terminated": ended}
                pod["status"]["containerStatuses"][0]["state"] = state
                pod["status"]["phase"] = "Failed" if status else "Succeeded"
        self._end_job(job, "Failed" if status else "Complete", "BackoffLimitExceeded")

    def _end_job(self, job: dict[str, Any], kind: str, reason: str) -> None:
        entry = {"type": kind, "status": "True", "lastTransitionTime": format_time(self.now)}
        job["status"] = {"conditions": [{**entry, "reason": reason}]}

    def _drop_pods(self, job: dict[str, Any]) -> None:
        for key, pod in list(self.pods.items()):
            if pod["metadata"]["labels"].get(LABEL_JOB) == job["metadata"]["name"]:
                del self.pods[key]

    def fall_ill_and_heal(self) -> None:
        """To the moment when every cause is closed."""
        self.incident(NODE)
        self.run_until(NODE, "Validating", limit=3600)

    def tests_of(self, node: str = NODE) -> list[tuple[str, str]]:
        """State and verdict of every test of the node's latest session."""
        return [(t.state, t.verdict) for t in self.session(node).status.validation]

    def made(self) -> list[CreateTestJob]:
        """Every Job that was asked for, in order."""
        return self.writes(CreateTestJob)
