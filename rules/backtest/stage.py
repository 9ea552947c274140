"""The replayed cluster: its nodes, what their agents publish, what others say on them, their
tests.

Whatever happens to a node happens here, told by `rules.backtest.engine`; nothing is decided.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rules.api.evidence.wire import EvidenceView, digest
from rules.api.health import GpuStatus, HealthStatus, PublisherPod
from rules.api.metadata import ObjectMeta
from rules.api.nodes import HealthView, NodeView, QuarantineView
from rules.api.pods import PodView
from rules.api.repair.writes import SetRepairCondition
from rules.api.timestamps import format_time
from rules.backtest.archive import node_object
from rules.backtest.faults import PastFault
from rules.backtest.objects import agent_of, as_it_was, patched
from rules.backtest.past import Past
from rules.backtest.real import RealTest
from rules.backtest.said import PastSaid, with_said
from rules.policy.external import ExternalTrigger
from rules.policy.policy import Policy
from rules.session.external import first_seen
from rules.validate.contract import EXIT_STATUS, Verdict
from rules.validate.jobs import ANNOTATION_OF, JobSeen, JobView, PodTemplateView


class Stage:
    """Nodes and everything on them, at `now`."""

    def __init__(self, past: Past, policy: Policy) -> None:
        self._past = past
        self._policy = policy
        self.now = past.began
        self.nodes: dict[str, NodeView] = {}
        self.healths: dict[str, HealthView] = {}
        self.agents = {f"agent-{n.name}": agent_of(n.name) for n in past.nodes}
        self.external_seen: dict[str, Mapping[str, float]] = {}
        self._raw = {n.name: node_object(n) for n in past.nodes}
        self._boots: dict[str, int] = defaultdict(int)
        self._lives: dict[str, int] = defaultdict(int)
        self._gone: dict[str, list[NodeView]] = defaultdict(list)
        self._gpus = {n.name: list(past.gpus_of(n.name)) for n in past.nodes}
        self._faults: dict[str, dict[str, PastFault]] = defaultdict(dict)
        self._mended: dict[str, float] = {}
        """When a repair step ended a fault, by incident."""
        self._jobs: dict[str, tuple[float, RealTest | None]] = {}
        """When each test ends that was made, and how."""
        self._serial = 1
        triggers = [t for t in policy.external if t.taint is not None or t.label is not None]
        for name in self._raw:
            for trigger in triggers:
                # What others said until the export is said again when its time comes.
                self._raw[name] = with_said(self._raw[name], trigger, self.now, stands=False)
            self.comes(name)

    # ------------------------------------------------------------------ nodes

    def comes(self, name: str) -> None:
        """A Node of this name registers, of its first boot and without our mark."""
        node = as_it_was(self._raw[name])
        uid = self._past.uid_of(name, self._lives[name]) or node.uid
        if any(known.uid == uid for known in self._gone.get(name, ())):
            uid = f"{uid}-{self._lives[name]}"
        meta = msgspec.structs.replace(node.metadata, uid=uid)
        self._boots[name] += 1
        self.nodes[name] = msgspec.structs.replace(node, metadata=meta)
        self._changed(name, status={"nodeInfo": {"bootID": self._boot(name)}})

    def goes(self, name: str) -> None:
        """The Node object is deleted, and with it what its agent published."""
        gone = self.nodes.pop(name, None)
        if gone is not None:
            self._gone[name].append(gone)
        self.healths.pop(name, None)
        self._faults.pop(name, None)
        self._lives[name] += 1

    def boots(self, name: str) -> None:
        """A new boot; the verdict is of the old one until its agent publishes again."""
        if name in self.nodes:
            self._boots[name] += 1
            self._changed(name, status={"nodeInfo": {"bootID": self._boot(name)}})

    def patch(self, name: str, patch: Mapping[str, Any]) -> None:
        """A merge patch of ours."""
        if name in self.nodes:
            self._serial += 1
            self.nodes[name] = patched(self.nodes[name], patch, self._serial)

    def notes(self, name: str, key: str, value: str | None) -> None:
        """An annotation that the replay itself needs."""
        self.patch(name, {"metadata": {"annotations": {key: value}}})

    def asked_by(self, write: SetRepairCondition) -> None:
        """The condition that asks for a repair, set or taken back."""
        if write.node not in self.nodes:
            return
        raw = msgspec.to_builtins(self.nodes[write.node])
        others = [c for c in raw["status"].get("conditions", ()) if c["type"] != write.kind]
        mine = {
            "type": write.kind,
            "status": "True" if write.asks else "False",
            "message": write.message,
            "lastTransitionTime": format_time(write.at),
        }
        self._changed(write.node, status={"conditions": [*others, mine]})

    def says(self, said: PastSaid, trigger: ExternalTrigger, *, stands: bool) -> None:
        """Others say on a node what the trigger looks for, or take it back."""
        if said.node not in self.nodes:
            return
        raw = msgspec.to_builtins(self.nodes[said.node])
        at = said.began if stands else self.now
        self._store(said.node, with_said(raw, trigger, at, stands=stands))
        known = self.external_seen.get(said.node, {})
        self.external_seen[said.node] = first_seen(
            self.nodes[said.node], self._policy, known, self.now
        )

    def _changed(self, name: str, *, status: Mapping[str, Any]) -> None:
        raw = msgspec.to_builtins(self.nodes[name])
        self._store(name, {**raw, "status": {**raw["status"], **status}})

    def _store(self, name: str, raw: dict[str, Any]) -> None:
        self._serial += 1
        raw["metadata"] = {**raw["metadata"], "resourceVersion": str(self._serial)}
        self.nodes[name] = msgspec.convert(raw, NodeView)

    def _boot(self, name: str) -> str:
        return f"boot-{self._boots[name]}"

    # ------------------------------------------------------------------ verdicts

    def fault(self, fault: PastFault) -> None:
        """A fault begins or ends."""
        if fault.node in self.nodes:
            self._faults[fault.node][fault.incident.id] = fault
            self.publish(fault.node)

    def mend(self, faults: Iterable[PastFault]) -> None:
        """A repair step ended them."""
        for fault in faults:
            self._mended.setdefault(fault.incident.id, self.now)
            self.publish(fault.node)

    def reset(self, name: str, accused: Iterable[str], *, exchanged: bool) -> None:
        """The agent sees its GPUs reset, and (`exchanged`) others in the place of those
        accused.
        """
        gone = set(accused)
        at = format_time(self.now)
        self._gpus[name] = [
            msgspec.structs.replace(
                gpu,
                reset_at=at,
                serial=f"{gpu.serial}-new" if exchanged and gpu.uuid in gone else gpu.serial,
            )
            for gpu in self._gpus.get(name, ())
        ]
        self.publish(name)

    def publish(self, name: str) -> None:
        """What the agent says of the node now."""
        if name not in self.nodes:
            return
        incidents = []
        for fault in self._faults[name].values():
            ended = self._ended(fault)
            active = ended is None or ended > self.now
            closed = "" if active or ended is None else format_time(ended)
            incidents.append(
                msgspec.structs.replace(fault.incident, active=active, closed_at=closed)
            )
        versions = self._past.versions.get(name, ("", "", ""))
        status = HealthStatus(
            publisher=PublisherPod(pod=f"gpuward/{name}", pod_uid=f"agent-{name}"),
            node_uid=self.nodes[name].uid,
            boot_id=self._boot(name),
            observed_at=format_time(self.now),
            driver_version=versions[0],
            agent_version=versions[1],
            rules_version=versions[2],
            health="Unhealthy" if any(i.active for i in incidents) else "Healthy",
            gpus=self._seen_gpus(name),
            incidents=tuple(incidents),
        )
        self.healths[name] = HealthView(metadata=ObjectMeta(name=name), status=status)

    def _ended(self, fault: PastFault) -> float | None:
        """A fault that ended with a repair step ends with it here too, and never without."""
        if fault.step is None:
            return fault.ended
        return self._mended.get(fault.incident.id)

    def _seen_gpus(self, name: str) -> tuple[GpuStatus, ...]:
        known = self._gpus.get(name) or [GpuStatus(uuid=f"GPU-{name}-0", index=0)]
        there = {gpu.uuid for gpu in known}
        named = {u for f in self._faults[name].values() for u in f.incident.gpus} - there
        return (*known, *(GpuStatus(uuid=uuid) for uuid in sorted(named)))

    # ------------------------------------------------------------------ tests and evidence

    def makes(self, job: str, ends_at: float, real: RealTest | None) -> None:
        """A Job that tests a node."""
        self._jobs.setdefault(job, (ends_at, real))

    def job_seen(self, name: str, template: str, node: str, session_uid: str) -> JobSeen:
        """What is read of a test's Job."""
        made = self._jobs.get(name)
        if made is None:
            spec = {"spec": {"containers": [{"name": "test"}]}}
            kept = PodTemplateView(metadata=ObjectMeta(name=template), template=spec)
            return JobSeen(name=name, template=kept)
        meta = ObjectMeta(name=name, uid=f"uid-{name}", annotations={ANNOTATION_OF: session_uid})
        ends_at, real = made
        pods = (_pod_of(name, node, real),) if self.now >= ends_at else ()
        return JobSeen(name=name, job=JobView(metadata=meta), pods=pods)

    def evidence(self, session: QuarantineView) -> EvidenceView:
        """What the agent kept of the node for a session."""
        spec = {
            "session": session.name,
            "nodeName": session.spec.node_name,
            "takenAt": format_time(self.now),
        }
        return EvidenceView(
            metadata=ObjectMeta(name=session.name), spec={**spec, "sha256": digest(spec)}
        )


def _pod_of(job: str, node: str, real: RealTest | None) -> PodView:
    """The test's pod, ended with what is on record of its result."""
    verdict = Verdict.PASS
    checks: list[dict[str, Any]] = [{"id": "not-on-record", "verdict": "pass"}]
    message = "no such test is on record: assumed to pass"
    if real is not None:
        said = real.attempt
        verdict = Verdict(said.verdict) if said.verdict in set(Verdict) else Verdict.UNKNOWN
        message = said.message or str(verdict)
        checks = [
            {
                key: value
                for key, value in msgspec.to_builtins(check).items()
                if value not in ("", None)
            }
            for check in said.checks
        ] or [{"id": "on-record", "verdict": str(verdict)}]
    result = {"verdict": str(verdict), "message": message[:512], "checks": checks[:4]}
    ended = {
        "exitCode": EXIT_STATUS[verdict],
        "message": msgspec.json.encode(result).decode(),
    }
    owner = {
        "apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"uid-{job}",
        "controller": True,
    }  # fmt: skip
    raw = {
        "metadata": {
            "name": job, "namespace": "gpuward", "uid": f"pod-{job}", "ownerReferences": [owner],
        },
        "spec": {"nodeName": node, "containers": [{"name": "test"}]},
        "status": {
            "phase": "Failed" if ended["exitCode"] else "Succeeded",
            "containerStatuses": [{"name": "test", "state": {"terminated": ended}}],
        },
    }  # fmt: skip
    return msgspec.convert(raw, PodView)
