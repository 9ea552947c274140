"""The quarantine of an entire NVLink domain: no node is drained before all are quarantined.

An operator requests it. Each node has a session of its own, with a manual cause that names the
domain. The nodes of the domain are those with its label and those with such a session. So a
request that stopped half way drains nothing, and a node that lost its label still counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rules.api import messages, quarantine_taint
from rules.api.names import LABEL_NVLINK_DOMAIN
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Mode
from rules.api.quarantine_taint import QuarantineState
from rules.catalog.why_not import Refusal, WhyNot
from rules.session import observation
from rules.session.causes import requested_domain
from rules.text.printable import count

ALL_TAINTED_S: Final = 60.0
"""How long the last nodes may take before an operator is called: the command writes its sessions
within seconds, and a taint needs less than one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainProgress:
    """The nodes of one domain session."""

    domain: str
    nodes: tuple[str, ...]
    sessions: Mapping[str, QuarantineView]
    """The open session for the domain, by node."""
    missing: tuple[str, ...]
    """Nodes without such a session, or without its taint and cordon."""

    @property
    def clause(self) -> str:
        """Return `17 of 18 nodes quarantined, not yet: n3`."""
        done = len(self.nodes) - len(self.missing)
        rest = f", not yet: {messages.name_list(self.missing)}" if self.missing else ""
        return f"{done} of {count(len(self.nodes), 'node')} quarantined{rest}"


def progress(
    domain: str, sessions: Iterable[QuarantineView], nodes: Iterable[NodeView]
) -> DomainProgress:
    """Return the nodes of the domain, and which of them its session has not quarantined."""
    known = {node.name: node for node in nodes}
    members = [s for s in sessions if observation.is_open(s) and requested_domain(s) == domain]
    labelled = {n.name for n in known.values() if n.labels.get(LABEL_NVLINK_DOMAIN) == domain}
    its = labelled | {s.spec.node_name for s in members if s.spec.node_name in known}
    done = {s.spec.node_name for s in members if _is_tainted(known.get(s.spec.node_name), s)}
    return DomainProgress(
        domain=domain,
        nodes=tuple(sorted(its)),
        sessions={s.spec.node_name: s for s in reversed(members)},
        missing=tuple(sorted(its - done)),
    )


def _is_tainted(node: NodeView | None, session: QuarantineView) -> bool:
    """Return whether the node itself is quarantined for the session, not only single GPUs."""
    return (
        node is not None
        and session.status.mode == Mode.ENFORCE
        and quarantine_taint.quarantine_state(node, session.name) is QuarantineState.INTACT
        and not quarantine_taint.isolates_devices(node, session.name)
    )


def drain_refusal(node: NodeView, waited_s: float, its: DomainProgress) -> Refusal | None:
    """Return why the node of a domain session is not drained yet; None if it may be.

    The label is what the node's agent reports now, the request is what an operator wrote.
    """
    domain = its.domain[:63]
    now = node.labels.get(LABEL_NVLINK_DOMAIN, "")
    if now != its.domain:
        has = f"it is in {now[:63]} now" if now else "its label names none now"
        why = f"its quarantine was requested for NVLink domain {domain}, and {has}"
        return Refusal(reason=WhyNot.NVLINK_DOMAIN_INCOMPLETE, why=why, permanent=True)
    if not its.missing:
        return None
    why = f"no node of NVLink domain {domain} is drained before all are quarantined: {its.clause}"
    late = waited_s >= ALL_TAINTED_S
    return Refusal(reason=WhyNot.NVLINK_DOMAIN_INCOMPLETE, why=why, permanent=late)
