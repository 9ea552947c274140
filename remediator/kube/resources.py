"""Addresses of the lists that both the remediator and its commands read, and the agent's pods.

Imports nothing heavy: a command that only lists must start at once.
"""

from rules.api import names, timestamps
from rules.api.metadata import ObjectMeta, View
from rules.api.nodes import AgentPod

CUSTOM = f"/apis/{names.GROUP}/{names.VERSION}"
NODES = "/api/v1/nodes"
HEALTHS = f"{CUSTOM}/gpunodehealths"
QUARANTINES = f"{CUSTOM}/gpuquarantines"
RECORDS = f"{CUSTOM}/gpurecords"
PDBS = "/apis/policy/v1/poddisruptionbudgets"
DAEMON_SETS = "/apis/apps/v1/daemonsets"
AGENT_SELECTOR = "app.kubernetes.io/name=gpuward,app.kubernetes.io/component=agent"
REMEDIATOR_SELECTOR = "app.kubernetes.io/name=gpuward,app.kubernetes.io/component=remediator"


class _Condition(View, frozen=True, kw_only=True):
    type: str
    status: str = ""
    last_transition_time: str | None = None


class _AgentPodSpec(View, frozen=True, kw_only=True):
    node_name: str = ""


class _AgentPodStatus(View, frozen=True, kw_only=True):
    conditions: tuple[_Condition, ...] = ()


class AgentPodObject(View, frozen=True, kw_only=True):
    """A pod of the agent: its node and whether it is Ready."""

    metadata: ObjectMeta
    spec: _AgentPodSpec = _AgentPodSpec()
    status: _AgentPodStatus = _AgentPodStatus()

    def as_agent(self) -> AgentPod:
        """What the rules ask of it."""
        ready = next((c for c in self.status.conditions if c.type == "Ready"), None)
        changed = timestamps.parse_time(ready.last_transition_time or "") if ready else None
        return AgentPod(
            uid=self.metadata.uid,
            node=self.spec.node_name,
            ready=ready is not None and ready.status == "True",
            ready_changed_at=changed or self.metadata.created_at,
        )
