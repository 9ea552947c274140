"""One node: its GPUs, active incidents with evidence, senses, marks, sessions, topology."""

from __future__ import annotations

from collections.abc import Sequence

from remediator.page.heat_map import described
from remediator.page.layout import page, trouble
from remediator.page.markup import Content, Element, el
from remediator.page.parts import (
    ago,
    chip,
    evidence_lines,
    facts,
    live,
    node_link,
    nothing,
    section,
    session_link,
    table,
)
from remediator.page.session_page import commands, marks_list
from remediator.page.session_table import ended_table, open_table
from remediator.page.timeline_plot import timeline_parts
from remediator.view.session_words import degraded_of
from remediator.view.shapes import (
    MovedShown,
    NodeDetail,
    NodeTimeline,
    ReplicaShown,
    SessionRow,
)
from rules.api.health import GpuStatus, HealthStatus, IncidentStatus
from rules.catalog.device import places

SHOWN_GPUS = 64
SHOWN_CLOSED = 10
SHOWN_SESSIONS = 20


def node_page(detail: NodeDetail, replica: ReplicaShown, now: float) -> Element:
    """The whole document."""
    node, health = detail.node, detail.health
    return page(
        f"{node.name}: {node.health}",
        "/",
        replica,
        trouble(replica),
        el("h1", node.name),
        el("p.under", f"pool {node.pool}, rack {node.rack}"),
        live("state", "div.state", _state(detail, now)),
        # Faults before everything that is well: on a phone the rest is many screens away.
        section("incidents", "Incidents", live("incidents", "div", _incidents(health, now))),
        section("gpus", "GPUs", live("gpus", "div", _gpus(health, stale=bool(detail.stale)))),
        section(
            "marks",
            "What keeps work off the node",
            live("marked", "div", marks_list(detail.marks, "No taint and no cordon.")),
        ),
        section("history", "Sessions", live("sessions", "div", _sessions(detail.sessions, now))),
        section(
            "timeline", "Timeline", live("steps", "div", timeline_parts(detail.timeline, now))
        ),
        section("acts", "What you can do", *commands(node.name, detail.acts)),
        section("senses", "Senses", live("senses", "div", _senses(health, now))),
        section("topology", "Topology", _topology(health)) if health else None,
    )


def gone_node_page(
    name: str,
    sessions: Sequence[SessionRow],
    timeline: NodeTimeline,
    moved: Sequence[MovedShown],
    replica: ReplicaShown,
    now: float,
) -> Element:
    """What is kept of a node that is no more, and where its GPUs are now (`moved`); nothing can be
    done about it.
    """
    return page(
        f"{name}: gone",
        "/",
        replica,
        trouble(replica),
        el("h1", name),
        el("p.sentence", {"role": "status"}, "There is no such GPU node any more; this is kept."),
        _moved(moved),
        section("history", "Sessions", live("sessions", "div", _sessions(sessions, now))),
        section("timeline", "Timeline", live("steps", "div", timeline_parts(timeline, now))),
        section("acts", "What you can do", *commands(name, ())),
    )


def _moved(moved: Sequence[MovedShown]) -> Element | None:
    """The way to another name of the machine, or of its GPUs."""
    if not moved:
        return None
    return el("ul.notes", [el("li", f"{one.said}: ", node_link(one.node)) for one in moved])


def _state(detail: NodeDetail, now: float) -> list[Element | None]:
    node, health = detail.node, detail.health
    chips = [chip(node.health)]
    if node.phase:
        chips.append(chip(node.phase))
    if node.mode == "Shadow":
        chips.append(chip("Shadow"))
    said = health.message if health else ""
    if detail.stale:
        said = f"Nobody knows how its GPUs are now: {detail.stale}. Its last word was: {said}"
    if not health:
        said = "No verdict is at hand: the agent published none, or it could not be read just now."
    worn = degraded_of(health) if health else ""
    last = " when last seen" if detail.stale else ""
    silent = health.silent_since if health else ""
    return [
        el("p.chips", chips),
        el("p.sentence", {"role": "status"}, said or f"{described(node)}."),
        el("ul.notes", [el("li", note) for note in detail.notes]) if detail.notes else None,
        _moved(detail.moved),
        facts(
            [
                ("Usable GPUs", f"{node.gpus_healthy} of {node.gpus}{worn}{last}"),
                ("Session", session_link(node.session) if node.session else None),
                ("Kubelet ready", {"True": "yes", "False": "no"}.get(node.ready, "not known")),
                ("Driver", health.driver_version if health else ""),
                ("Agent", health.agent_version if health else ""),
                ("Silent", ago(silent, now) if silent else None),
                ("Verdict", ago(health.observed_at, now, after=" ago") if health else None),
            ]
        ),
    ]


def _gpus(health: HealthStatus | None, *, stale: bool) -> list[Element]:
    if health is None or not health.gpus:
        return [nothing("The verdict names no GPU.")]
    return [
        *([nothing("As they were when last seen.")] if stale else []),
        table(
            "GPUs of the node",
            ("GPU", "Health", "Reason", "Product", "PCI", "Serial", "UUID"),
            [_gpu(gpu) for _, gpu in _sick_first(health.gpus[:SHOWN_GPUS])],
            kind="gpu-rows",
        ),
    ]


def _sick_first(gpus: Sequence[GpuStatus]) -> list[tuple[int, GpuStatus]]:
    return sorted(enumerate(gpus), key=lambda item: (item[1].health == "Healthy", item[0]))


def _gpu(gpu: GpuStatus) -> Sequence[Content]:
    action = gpu.recovery_action if gpu.recovery_action not in {"", "None"} else ""
    pending = " reset pending" if gpu.reset_pending else ""
    return (
        str(gpu.index) if gpu.index >= 0 else "?",
        chip(gpu.health.lower()),
        f"{gpu.reason}{' driver asks: ' + action if action else ''}{pending}".strip() or "-",
        gpu.product or "-",
        [el("code", gpu.pci)] if gpu.pci else "-",
        gpu.serial or "-",
        [el("code.long", gpu.uuid)] if gpu.uuid else "-",
    )


def _incidents(health: HealthStatus | None, now: float) -> list[Element]:
    incidents = health.incidents if health else ()
    active = [one for one in incidents if one.active]
    closed = [one for one in incidents if not one.active][:SHOWN_CLOSED]
    if not active and not closed:
        return [nothing("None, as far as the verdict tells.")]
    told = [_incident(one, now, "h3") for one in active] or [nothing("None is active.")]
    if closed:
        told.append(el("h3", "Recently closed"))
        told.extend(_incident(one, now, "h4") for one in closed)
    return told


def _incident(incident: IncidentStatus, now: float, heading: str) -> Element:
    xids = ", ".join(str(xid) for xid in incident.xids)
    closed = f"by {incident.closed_by}" if incident.closed_by else ""
    return el(
        "article",
        {"class": "incident" if incident.active else "incident over"},
        el(heading, incident.reason, " ", chip(incident.severity)),
        facts(
            [
                ("First seen", ago(incident.first_seen, now, after=" ago")),
                ("Seen", f"{incident.count} times" if incident.count > 1 else "once"),
                ("Asks for", f"{incident.level}, repair {incident.recommended_action}"),
                ("Xid", xids),
                ("Where", ", ".join(places(incident.reason, incident.pci, incident.gpus)[:8])),
                ("Closes on", incident.closes_on if incident.active else ""),
                ("Closed", ago(incident.closed_at, now, after=f" ago {closed}")
                 if incident.closed_at else None),
            ]
        ),
        evidence_lines(incident.evidence) if incident.evidence else None,
    )  # fmt: skip


def _sessions(sessions: Sequence[SessionRow], now: float) -> list[Element]:
    opened = [row for row in sessions if row.open]
    ended = [row for row in sessions if not row.open]
    if not sessions:
        return [nothing("This node has never been in quarantine, as far as history is kept.")]
    return [
        *([open_table(opened, now)] if opened else []),
        *([ended_table(ended[:SHOWN_SESSIONS], now)] if ended else []),
    ]


def _senses(health: HealthStatus | None, now: float) -> list[Element]:
    if health is None or not health.sources:
        return [nothing("The verdict names no source.")]
    return [
        table(
            "How the agent sees this node",
            ("Source", "State", "Since", "Why"),
            [
                (one.name, one.state, ago(one.since, now), one.reason or "-")
                for one in health.sources
            ],
        )
    ]


def _topology(health: HealthStatus) -> list[Element]:
    topology = health.topology
    lines = aligned(topology.links)
    sick = {
        f"GPU{gpu.index}": f"{gpu.health.lower()}: {gpu.reason or 'no reason'}"
        for gpu in health.gpus
        if gpu.health != "Healthy" and gpu.index >= 0
    }
    return [
        facts(
            [
                ("Interconnect", topology.interconnect),
                ("NVLink domain", topology.nvlink_domain),
                ("GPUs per NUMA node", topology.numa),
            ]
        ),
        el("pre.matrix", {"tabindex": "0", "role": "region",
                   "aria-label": "NVLink matrix as nvidia-smi topo -m spells it"},
           [_matrix_line(line, sick) for line in lines])
        if lines else nothing("No NVLink matrix was published."),
    ]  # fmt: skip


def _matrix_line(line: str, sick: dict[str, str]) -> Element:
    """A row of the matrix; the row of a GPU that is not well says so."""
    said = sick.get(line.split(" ")[0])
    if said is None:
        return el("code", line)
    return el("code.sick", line, el("strong", f"  <- {said}"))


def aligned(matrix: str) -> list[str]:
    """The lines of a matrix whose cells are apart by tabs, as columns of equal width."""
    lines = [[cell.strip() for cell in line.split("\t")] for line in matrix.splitlines()[:40]]
    width = max((len(cell) for line in lines for cell in line), default=0)
    return ["  ".join(cell[:12].ljust(min(width, 12)) for cell in line).rstrip() for line in lines]
