"""What the remediator's edge reads for one session beside its node, from the objects of a
cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from rules.api.evidence.wire import EvidenceView
from rules.api.nodes import NodeView, QuarantineView
from rules.api.pods import PodView
from rules.session.external import first_seen
from rules.session.repair.evidence import wanted_of
from rules.session.validation.verdicts import under_way
from rules.validate.jobs import LABEL_JOB, JobSeen, JobView, PodTemplateView

if TYPE_CHECKING:
    from tests.support.scenario.session_world import World

__all__ = ["evidence_for", "external_seen", "job_seen"]


def evidence_for(world: World, session: QuarantineView | None) -> EvidenceView | None:
    if session is None or not wanted_of(session, world.now):
        return None
    found = world.evidences.get(session.name)
    return msgspec.convert(found, EvidenceView) if found is not None else None


def job_seen(world: World, session: QuarantineView | None) -> JobSeen | None:
    """What `remediator.cycle.job_look` reads."""
    test = under_way(session.status) if session is not None else None
    if test is None:
        return None
    template = world.templates.get(test.template)
    job = world.jobs.get(test.object)
    return JobSeen(
        name=test.object,
        job=msgspec.convert(job, JobView) if job is not None else None,
        pods=tuple(
            msgspec.convert(pod, PodView)
            for pod in world.pods.values()
            if pod["metadata"]["labels"].get(LABEL_JOB) == test.object
        ),
        template=msgspec.convert(template, PodTemplateView) if template is not None else None,
    )


def external_seen(world: World) -> dict[str, Mapping[str, float]]:
    """Noted at every cycle, as the loop does at every change of a node."""
    known = world.controller.external_seen
    world.controller.external_seen = {
        name: first_seen(
            msgspec.convert(node, NodeView), world.policy, known.get(name, {}), world.now
        )
        for name, node in world.nodes.items()
        if world.policy.external
    }
    return world.controller.external_seen
