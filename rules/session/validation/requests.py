"""What is sent for a test under load: its Job made, and taken away again."""

from __future__ import annotations

from rules.api.nodes import NodeView
from rules.api.quarantine import ValidationAttempt
from rules.api.repair_writes import CreateTestJob, DeleteTestJob, SetValidated
from rules.session.case import Case
from rules.session.validation.jobs import job_of
from rules.session.validation.result import is_ours
from rules.session.validation.verdicts import under_way


def making(case: Case, test: ValidationAttempt, timeout_s: float) -> CreateTestJob | None:
    """The write that makes the Job; None while its template is not known."""
    seen = case.seen.job
    if seen is None or seen.template is None:
        return None
    return CreateTestJob(
        node=case.node.name,
        node_uid=case.node.uid,
        session=case.session.name,
        namespace=case.seen.own_namespace,
        name=test.object,
        body=job_of(
            seen.template.template,
            name=test.object,
            node=case.node.name,
            session=case.session.name,
            session_uid=case.session.metadata.uid,
            timeout_s=timeout_s,
        ),
    )


def taking_away(case: Case) -> tuple[DeleteTestJob, ...]:
    """The Job of the test under way: off with it, where it is known to be ours."""
    test = under_way(case.session.status)
    if test is None or case.shadow:
        return ()
    uid, seen = test.job_uid, case.seen.job
    if not uid and seen is not None and seen.name == test.object and seen.job is not None:
        uid = seen.job.metadata.uid if is_ours(seen.job, case.session.metadata.uid) else ""
    if not uid:
        # It ends by its own deadline: nothing is deleted by its name alone.
        return ()
    return (
        DeleteTestJob(
            node=case.seen.name,
            namespace=case.seen.own_namespace,
            name=test.object,
            uid=uid,
        ),
    )


def told_on(node: NodeView, job: str, *, passed: bool, message: str, now: float) -> SetValidated:
    """The condition that says what the last test of the node came to, by the Job's name."""
    return SetValidated(
        node=node.name,
        node_uid=node.uid,
        passed=passed,
        message=f"{job}: {message}"[:1024],
        at=now,
    )
