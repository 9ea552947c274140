"""What sessions asked of others for their nodes is taken back, as a release would.

Conditions of the Node come off with everything else that is on it (`node_cleaning`); here are the
labels and annotations of a policy's own adapters, and objects: annotations off a Machine, a
request that was made for the step deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from remediator.kubectl.answers import checked
from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from rules.api.names import ANNOTATION_REPAIR
from rules.api.nodes import QuarantineView
from rules.api.repair.writes import Verb, WriteRepairObject
from rules.api.requests import request
from rules.api.writes import Write
from rules.policy.policy import Policy
from rules.repair.target import address_of
from rules.session.case import Case
from rules.session.observation import NodeObservation, is_open
from rules.session.repair.ends import asked_of_others, never_taken_back
from rules.session.repair.following import TakenBack

_READS: Final = 32
"""More objects than one session has steps that ask."""

Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Withdrawn:
    """What became of all requests."""

    kept: dict[str, str] = field(default_factory=dict)
    """By node, why a request may still be followed."""
    jobs: list[tuple[str, str]] = field(default_factory=list)
    """Namespace and UID of Jobs that were deleted: their pods have still to end."""
    left: list[str] = field(default_factory=list)
    """What nobody takes back, a line each."""


async def withdraw(
    cluster: Cluster, sessions: Iterable[QuarantineView], namespace: str, say: Say
) -> Withdrawn:
    """Take the requests of all open sessions back."""
    found = Withdrawn()
    asking = [each for each in sessions if is_open(each) and each.status.repair]
    if not asking:
        return found
    policy = await _policy(cluster, namespace)
    back = _TakingBack(cluster, policy, namespace, say)
    for session in asking:
        name = session.spec.node_name
        try:
            case, waits = await back.of(session)
        except CommandError as error:
            found.kept[name] = f"not given back: what was asked for it still stands: {error}"
            continue
        if waits:
            found.kept[name] = f"not given back: a request may still stand: {waits}"
        found.left += [
            f"{address_of(attempt.target).words}: may still ask for a {attempt.step}; take off "
            f"what stands beside annotation {ANNOTATION_REPAIR}, or delete what was made for it"
            for attempt in never_taken_back(case)
            if attempt.target is not None
        ]
    found.jobs = back.jobs
    return found


class _TakingBack:
    """The requests of one session after the other, by the rules of its end."""

    def __init__(self, cluster: Cluster, policy: Policy, namespace: str, say: Say) -> None:
        self._cluster = cluster
        self._policy = policy
        self._namespace = namespace
        self._say = say
        self._reader = cluster.repair_objects()
        self.jobs: list[tuple[str, str]] = []

    async def of(self, session: QuarantineView) -> tuple[Case, str]:
        """Take them back; the case, and why something may still stand, "" for nothing."""
        for last in (False, False, True):
            case, taken = await self._judged(session)
            try:
                for write in taken.writes:
                    await self._send(write)
            except CommandError as error:
                if last or not error.outrun:
                    raise
                self._reader.forget(case.seen.name)
            else:
                return case, taken.waits or taken.left
        raise AssertionError("the last try returns or raises")

    async def _judged(self, session: QuarantineView) -> tuple[Case, TakenBack]:
        """What the rules take back, with all read that they ask for."""
        name = session.spec.node_name
        node = await self._cluster.node(name)
        for _ in range(_READS):
            seen = NodeObservation(
                name=name,
                node=node,
                objects=self._reader.known(name),
                own_namespace=self._namespace,
            )
            now = self._cluster.now()
            case = Case(session=session, seen=seen, now=now, policy=self._policy)
            taken = asked_of_others(case)
            if taken.needs is None:
                return case, taken
            await self._reader.read(name, taken.needs)
        raise CommandError("too many objects ask for it")

    async def _send(self, write: Write) -> None:
        answer = await self._cluster.send(request(write))
        if answer.code != 404:
            checked(answer, writes=True)
        if not isinstance(write, WriteRepairObject):
            return
        if write.verb is Verb.DELETE and write.address.resource == "jobs":
            uid = str((write.body.get("preconditions") or {}).get("uid") or "")
            self.jobs.append((write.address.namespace, uid))
        if write.address.resource != "nodes":  # what comes off a Node is said with its mark
            self._say(f"{write.node}: request for a {write.step} taken off {write.name}")


async def _policy(cluster: Cluster, namespace: str) -> Policy:
    """The policy for its own adapters; those that ship are known without it."""
    try:
        return await cluster.policy(namespace) or Policy()
    except CommandError as error:
        if not error.unusable:
            raise
        return Policy()
