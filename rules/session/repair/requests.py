"""What is sent to ask for a step, and what takes it back: the adapter's data made into writes."""

from __future__ import annotations

from rules.api.nodes import NodeView
from rules.api.object_name import name_from
from rules.api.quarantine import RepairAttempt
from rules.api.sentences import causes_clause
from rules.api.writes import SetRepairCondition
from rules.repair.adapter import ADAPTERS, REPAIR_CONDITIONS
from rules.repair.ladder import Step
from rules.session.case import Case


def request_name(session: str, step: Step, attempt: int) -> str:
    """What a request is called everywhere: a second leader finds the first one's by it."""
    return name_from(session, f"-{step.lower()}-{attempt}")


def asked_already(case: Case, attempt: RepairAttempt) -> bool:
    """Whether the node carries the request: the call was sent by whoever led before."""
    kind = _condition_of(attempt)
    found = case.node.condition(kind) if kind else None
    return found is not None and found.status == "True" and _is(attempt, found.message)


def asking(case: Case, attempt: RepairAttempt) -> SetRepairCondition | None:
    """The write that asks for the step; None where its adapter cannot."""
    kind = _condition_of(attempt)
    if not kind:
        return None
    return SetRepairCondition(
        node=case.node.name,
        node_uid=case.node.uid,
        session=case.session.name,
        step=attempt.step,
        kind=kind,
        asks=True,
        message=f"{attempt.object}: {attempt.step} of a drained node is asked for because of "
        f"{causes_clause(case.causes)}."[:1024],
        at=case.now,
    )


def taking_back(case: Case, *, ends: bool) -> tuple[SetRepairCondition, ...]:
    """What is on the node of requests that ended: off with it, so that nobody follows it late.

    A request for a replacement stays while the session does: the node serves nobody, and whoever
    is slow to replace it still may. With the session (`ends`) everything goes.
    """
    if case.seen.node is None:
        return ()
    past = [a for a in case.session.status.repair if ends or a.step != Step.REPLACE_NODE]
    return tuple(
        _off(case.node, case.session.name, kind, case.now)
        for kind in asked_of(case.node)
        if any(_is(attempt, _message(case.node, kind)) for attempt in past)
    )


def asked_of(node: NodeView) -> tuple[str, ...]:
    """The repair conditions that the node carries as True."""
    found = ((kind, node.condition(kind)) for kind in REPAIR_CONDITIONS)
    return tuple(kind for kind, known in found if known is not None and known.status == "True")


def orphaned(node: NodeView, now: float) -> tuple[SetRepairCondition, ...]:
    """Requests on a node that no open session concerns: it may serve again, so they come off."""
    return tuple(_off(node, "", kind, now) for kind in asked_of(node))


def _off(node: NodeView, session: str, kind: str, now: float) -> SetRepairCondition:
    return SetRepairCondition(
        node=node.name,
        node_uid=node.uid,
        session=session,
        step="",
        kind=kind,
        asks=False,
        message="No repair of this kind is asked for.",
        at=now,
    )


def _condition_of(attempt: RepairAttempt) -> str:
    adapter = ADAPTERS.get(attempt.adapter)
    try:
        return adapter.conditions.get(Step(attempt.step), "") if adapter is not None else ""
    except ValueError:
        return ""


def _is(attempt: RepairAttempt, message: str) -> bool:
    return bool(attempt.object) and message.startswith(f"{attempt.object}: ")


def _message(node: NodeView, kind: str) -> str:
    found = node.condition(kind)
    return found.message if found is not None else ""
