"""What is sent for a test under load: its Job made, and taken away again."""

from __future__ import annotations

import hashlib
from typing import Final

from rules.api.object_name import name_from
from rules.api.quarantine import ValidationAttempt
from rules.api.writes import CreateTestJob, DeleteTestJob
from rules.session.case import Case
from rules.session.validation.verdicts import under_way
from rules.validate.jobs import MAX_JOB_NAME, job_of
from rules.validate.outcome import is_ours

_HASH: Final = 8


def job_name(session: str, attempt: int) -> str:
    """What the Job of this test is called everywhere: a second leader finds the first one's.

    A name that is too long for a Job is cut, and what was cut off is in a hash.
    """
    suffix, plain = f"-validate-{attempt}", session.replace(".", "-")
    room = MAX_JOB_NAME - len(suffix)
    if len(plain) > room:
        digest = hashlib.sha256(session.encode()).hexdigest()[:_HASH]
        plain = name_from(plain, f"-{digest}", room - _HASH - 1)
    return f"{plain}{suffix}"


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
