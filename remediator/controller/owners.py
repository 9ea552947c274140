"""Who owns a pod, up the chain: read when a drain needs a name, remembered for a while.

`drain_reads` asks for the owners that a plan wants to know. Custom resources are read where their
API and our permissions allow it; otherwise the chain ends at the reference, which still carries
kind and name. Nothing here may fail a drain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from remediator.kube.answer import Answer
from remediator.kube.api import Api
from remediator.kube.clock import Clock, PaceLane
from rules.api.metadata import ObjectMeta, OwnerReference
from rules.api.object_name import BadSegmentError, api_path, is_api_version
from rules.api.pods import OwnerView
from rules.drain.drain_plan import OwnerWanted
from rules.text.tolerant import understand

_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}", re.ASCII)
_CHAIN = 6
_FRESH_S = 60.0
_KEPT = 5_000
_PLURALS = {
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("apps/v1", "Deployment"): "deployments",
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("apps/v1", "DaemonSet"): "daemonsets",
    ("batch/v1", "Job"): "jobs",
    ("batch/v1", "CronJob"): "cronjobs",
    ("v1", "ReplicationController"): "replicationcontrollers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """What is known now: owners by UID, and UIDs that certainly do not exist any more."""

    known: dict[str, OwnerView]
    missing: frozenset[str]


class OwnerLookup:
    """Reads and remembers owners."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._known: dict[str, OwnerView] = {}
        self._missing: set[str] = set()
        self._asked_at: dict[str, float] = {}

    async def look_up(self, wanted: tuple[OwnerWanted, ...]) -> Owners:
        """Read the wanted owners and what is above them; all that is known then."""
        for owner in wanted:
            reference = OwnerReference(
                api_version=owner.api_version, kind=owner.kind, name=owner.name, uid=owner.uid
            )
            await self._climb(owner.namespace, reference)
        return Owners(known=dict(self._known), missing=frozenset(self._missing))

    async def _climb(self, namespace: str, reference: OwnerReference) -> None:
        owner: OwnerReference | None = reference
        for _ in range(_CHAIN):
            if owner is None:
                return
            found = await self._read(namespace, owner)
            owner = found.metadata.controller if found is not None else None

    async def _read(self, namespace: str, reference: OwnerReference) -> OwnerView | None:
        uid, now = reference.uid, self._clock.elapsed()
        if now - self._asked_at.get(uid, float("-inf")) < _FRESH_S:
            return self._known.get(uid)
        self._forget_when_many()
        self._asked_at[uid] = now
        answer = await self._get(namespace, reference)
        view = (
            understand(answer.body, OwnerView).value if answer is not None and answer.ok else None
        )
        if view is not None and view.metadata.uid == uid:
            self._known[uid] = view
            self._missing.discard(uid)
        elif view is not None or (answer is not None and answer.says_gone(reference.name)):
            self._missing.add(uid)
        else:
            # Not readable: the reference says enough for a sentence.
            self._known[uid] = OwnerView(
                api_version=reference.api_version,
                kind=reference.kind,
                metadata=ObjectMeta(name=reference.name, namespace=namespace, uid=uid),
            )
        return self._known.get(uid)

    async def _get(self, namespace: str, reference: OwnerReference) -> Answer | None:
        """Whoever may create pods writes the reference: what cannot be an owner is not asked
        for.
        """
        if not is_api_version(reference.api_version) or not _KIND.fullmatch(reference.kind):
            return None
        group, kind = reference.api_version, reference.kind.lower()
        plural = _PLURALS.get((group, reference.kind))
        root = "/api/v1" if group == "v1" else f"/apis/{group}"
        try:
            path = api_path(root, "namespaces", namespace, plural or f"{kind}s", reference.name)
        except BadSegmentError:
            return None
        answer = await self._api.call(PaceLane.READ, "GET", path)
        # Under a plural that was only guessed nothing being there proves nothing.
        return None if not plural and not answer.ok else answer

    def _forget_when_many(self) -> None:
        if len(self._asked_at) > _KEPT:
            self._known.clear()
            self._missing.clear()
            self._asked_at.clear()
