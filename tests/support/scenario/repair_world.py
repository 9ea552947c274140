"""Clusters whose drained nodes are repaired, tested under load, and whose faults are recorded.

A provider follows the Node conditions as a machine health check would, one minute after they
appear, and ends in one of the ways that providers end. Job controller and kubelet run each test
for two minutes and let it end in one of the ways that tests end, or seem to end.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from rules.api.evidence import digest, session_of
from rules.api.gpu_record import RecordStatus, gpu_record_name
from rules.api.nodes import QuarantineView
from rules.api.quarantine import RepairAttempt
from rules.api.repair_writes import CreateTestJob, SetRepairCondition
from rules.api.timestamps import format_time
from rules.api.writes import Write
from rules.session.repair.ladder import under_way
from rules.session.validation.jobs import LABEL_JOB
from tests.support.scenario.server.apiserver import OWN
from tests.support.scenario.session_world import ROOMY, CrashError, World, policy_of

NODE = "n0"
RESTART, REPLACE = "GPUNeedsRestart", "GPUNeedsReplace"
STEPS = {
    step: {"adapter": "NodeConditions", "timeout": "30m"}
    for step in ("ResetGPU", "RestartNode", "ReplaceNode")
}


def repair_policy(**repair: Any) -> Any:
    """Enforce, with room in the budget, and repair by Node conditions."""
    return policy_of(budget=ROOMY, repair={"mode": "Auto", "steps": STEPS, **repair})


class RepairWorld(World):
    """A virtual cluster with a provider that does what a request asks."""

    def __init__(self, nodes: int = 5, does: str = "heals", **repair: Any) -> None:
        super().__init__(repair_policy(**repair))
        self.add_nodes(nodes)
        self.does = does
        """heals, reboots (without healing), hangs, lies (an old boot, everything else well)"""
        self.keeps_evidence = True
        """Whether agents write evidence when a taint and cordon appears."""
        self.done: list[tuple[str, str]] = []
        """Node and condition of everything the provider did."""
        self.seen_at: dict[tuple[str, str], float] = {}

    def run_controllers(self) -> None:
        super().run_controllers()
        if self.keeps_evidence:
            for name in self.nodes:
                self.keep_evidence(name)
        for name in list(self.nodes):
            for kind in ("GPUNeedsReset", RESTART, REPLACE):
                self._provide(name, kind)

    def _provide(self, name: str, kind: str) -> None:
        if not self.asks(name, kind):
            self.seen_at.pop((name, kind), None)
            return
        since = self.seen_at.setdefault((name, kind), self.now)
        if since == float("inf") or self.now - since < 60:
            return
        self.seen_at[name, kind] = float("inf")
        self.done.append((name, kind))
        if self.does in {"heals", "reboots"} and kind == RESTART:
            self.reboot(name)
        if self.does == "heals":
            self.close_all(name)

    def keep_evidence(self, node: str, **changes: Any) -> None:
        """The node's agent keeps evidence of the session whose quarantine it sees."""
        metadata = self.nodes[node]["metadata"]
        session = session_of(metadata["annotations"])
        if not session or session in self.evidences or self.healths[node].get("silent"):
            return
        spec = {"session": session, "nodeName": node, "nodeUID": metadata["uid"]}
        spec |= {"takenAt": format_time(self.now), "kernelLog": "NVRM: Xid 79", **changes}
        spec = {**spec, "sha256": digest(spec)}
        self.evidences[session] = {"metadata": self._meta(session), "spec": spec}

    def asks(self, node: str, kind: str) -> bool:
        """Whether the node carries the condition as True."""
        found = (c for c in self.nodes[node]["status"].get("conditions", ()) if c["type"] == kind)
        return any(c["status"] == "True" for c in found)

    def steps_of(self, node: str = NODE) -> list[tuple[str, str]]:
        """Step and state of every repair of the node's latest session."""
        return [(a.step, a.state) for a in self.session(node).status.repair]

    def running(self) -> dict[str, RepairAttempt]:
        """Steps under way, by node."""
        found = {n: self.session(n) for n in self.nodes if self.sessions(n)}
        return {n: a for n, s in found.items() if (a := _under_way(s)) is not None}

    def leader_dies_at(self, last: Callable[[Write], bool], within_s: float = 120.0) -> None:
        """The leader ends before that write is sent; nobody leads until somebody is started."""

        def dies(write: Write) -> None:
            if last(write):
                raise CrashError

        self.meddler = dies
        with pytest.raises(CrashError):
            self.run(within_s)
        self.meddler = None

    def asked(self) -> list[SetRepairCondition]:
        """Every request that was sent, in order."""
        return [w for w in self.writes(SetRepairCondition) if w.disruptive]


def _under_way(session: QuarantineView) -> RepairAttempt | None:
    return under_way(session.status)


DAY = 86_400.0


class RecordWorld(RepairWorld):
    """Records are kept when a test reports it; sessions in a row alone replace nothing here."""

    def __init__(self, *steps: str, **repair: Any) -> None:
        """`steps`: those that the policy has an adapter for."""
        super().__init__(nodes=2)
        asked = {step: STEPS[step] for step in steps or STEPS}
        self.policy = policy_of(
            budget=ROOMY,
            repair={"mode": "Auto", "steps": asked, "attempts": 99, **repair},
            release={"replaceAfter": 99},
        )

    def keep_records(self) -> int:
        """One sweep of the real record keeping over all nodes; how many writes it took."""
        before, keeping = len(self.sent), self.replica.records
        keeping.took_over()
        self.do(keeping.sweep())
        return len(self.sent) - before

    def record(self, gpu: str = f"GPU-{NODE}-0") -> RecordStatus:
        """The record of a GPU."""
        return self.snapshot().records[gpu_record_name(gpu)].status

    def incident(self, node: str, *args: Any, **more: Any) -> str:
        """Of a GPU that the node's health status lists, as agents list every GPU they ever saw
        there.
        """
        name = super().incident(node, *args, **more)
        status = self.healths[node]["status"]
        listed = status.setdefault("gpus", [])
        for uuid in status["incidents"][0]["gpus"]:
            if all(gpu["uuid"] != uuid for gpu in listed):
                listed.append({"uuid": uuid, "health": "Unhealthy"})
        return name

    def fail_five_times(self) -> None:
        """A fault on each of five days, each mended by a restart."""
        for _ in range(5):
            self.fault(days_later=1)

    def fault(self, days_later: float = 0.0, node: str = NODE) -> None:
        """Time goes by in leaps; then a fault, its session and its end."""
        self.now += days_later * DAY
        self.run(120, step=60)
        self.incident(node)
        self.run_until(node, "Released", limit=40_000, step=25)
        self.keep_records()


RUNS_S = 120.0
CHECK = {"id": "memory", "gpu": "GPU-n0-0", "value": 0.0, "unit": "wrong values"}


def result_json(outcome: str, **check: Any) -> str:
    """What the container of a test leaves in its termination log."""
    checks = [{**CHECK, "verdict": outcome, **check}]
    return json.dumps({"verdict": outcome, "message": f"It is {outcome}.", "checks": checks})


OUTCOMES = {
    "passes": (0, result_json("pass")),
    "fails": (2, result_json("fail", value=7.0)),
    "is slow": (1, result_json("degraded", id="peer", value=30.0, unit="GB/s", floor=301.0)),
    "could not test": (3, result_json("unknown", id="start")),
    "fails without a check": (2, json.dumps({"verdict": "fail"})),
    "is silent": (1, ""),
    "is no JSON": (0, "all good, believe me"),
    "speaks too long": (0, result_json("pass", note="x" * 5000)),
    "contradicts itself": (0, result_json("pass", floor=400.0, value=30.0)),
    "cannot start": (127, ""),
    "passes and is killed": (137, result_json("pass")),
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

    def run_controllers(self) -> None:
        super().run_controllers()
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
        status, text = OUTCOMES.get(becomes, OUTCOMES["passes"])
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
        """State and health status of every test of the node's latest session."""
        return [(t.state, t.result) for t in self.session(node).status.validation]

    def made(self) -> list[CreateTestJob]:
        """Every Job that was asked for, in order."""
        return self.writes(CreateTestJob)
