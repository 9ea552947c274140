"""Read what a drain plan needs: the pods of a node, their owners, claims and volumes.

`drains` calls this before every plan. The pods come from its watch or from a list, PDBs
from their watch, owners from a cache (`Owners`). This module also reads the leases of other node
maintenance operators.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from remediator.controller.gpus import DeviceClaims, DeviceSlices, FreeGpus
from remediator.kube.answer import Answer, ApiError
from remediator.kube.api import Api
from remediator.kube.caches import Caches
from remediator.kube.clock import CallQueue, Clock
from remediator.kube.other_apis import ApiGroups
from remediator.world import Edge, EdgePart
from rules.api import object_name
from rules.api.health import Holders
from rules.api.metadata import ObjectMeta, OwnerReference
from rules.api.nodes import LeaseView, QuarantineView
from rules.api.object_name import BadSegmentError
from rules.api.pods import ClaimView, OwnerView, PodView, VolumeAttachmentView, unreadable_pod
from rules.api.quarantine import Cause, DrainStatus
from rules.catalog.reason import DrainScope
from rules.drain.drain_plan import DrainInput, DrainPlan, OwnerWanted
from rules.drain.memory import DrainMemory
from rules.session import exclusions
from rules.session.causes import waits_for_room, worst
from rules.session.observation import too_old
from rules.text import tolerant

_PAGE = 250
_ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"


class DrainReader:
    """Reads the input of `plan_drain`."""

    def __init__(self, api: Api, clock: Clock, caches: Caches) -> None:
        self._api = api
        self._caches = caches
        self._owners = OwnerLookup(api, clock)
        groups = ApiGroups(api, clock)
        self.slices = DeviceSlices(api, clock, groups)
        self._devices = DeviceClaims(api, clock, groups, self.slices)
        self._free = FreeGpus(api, clock, caches)
        self._claims: dict[str, ClaimView] = {}

    async def pods_on(self, node: str) -> tuple[PodView, ...]:
        """Return all pods bound to the node, uncached. Raises ApiError."""
        return await self._pods(node, limit=_PAGE)

    async def cached_pods_on(self, node: str) -> tuple[PodView, ...]:
        """Return the node's pods from the API server's watch cache. Raises ApiError.

        The list is cheap and may be slightly old: no node counts as empty by it.
        """
        return await self._pods(node, limit=0, resourceVersion="0")

    async def _pods(self, node: str, *, limit: int, **query: str) -> tuple[PodView, ...]:
        """Return the pods of the node; `unreadable_pod` replaces a pod that cannot be decoded."""
        query["fieldSelector"] = object_name.field_selector("spec.nodeName", node)
        listed = await self._api.items("/api/v1/pods", PodView, query=query, limit=limit)
        unread = (unreadable_pod(name, node) for name in listed.unread)
        return (*await self.with_gpus(node, listed.found), *unread)

    async def with_gpus(self, node: str, pods: tuple[PodView, ...]) -> tuple[PodView, ...]:
        """Return the node's pods with the GPUs that they claim and hold."""
        return await self._devices.with_gpus(node, pods, self._holders(node))

    def _holders(self, node: str) -> Holders | None:
        """Return the kubelet's list of this boot of the node; None if the agent publishes none."""
        health, view = self._caches.healths.items.get(node), self._caches.nodes.items.get(node)
        if health is None or view is None or health.status.boot_id != view.boot_id:
            return None
        return health.status.holders

    async def owners_of_gpu_pods(self, pods: Iterable[PodView]) -> dict[str, OwnerView]:
        """Return the known owners by UID, those of these GPU pods included."""
        wanted = {
            c.uid: (pod.metadata.namespace, c)
            for pod in pods
            if pod.gpus and not pod.finished and (c := pod.metadata.controller) is not None
        }
        return (await self._owners.look_up(tuple(wanted.values()))).known

    async def read(
        self,
        session: QuarantineView,
        causes: tuple[Cause, ...],
        memory: DrainMemory,
        before: DrainPlan | None,
        *,
        last_active_at: float | None,
        dry_run: bool,
        own_namespace: str = "",
        scope: DrainScope = DrainScope.NODE,
        accused: frozenset[str] = frozenset(),
        certain: bool = True,
        watched: tuple[PodView, ...] | None = None,
    ) -> DrainInput:
        """Return the input of the drain plan for the session's node. Raises ApiError.

        `causes` are the causes in effect (`rules.session.causes`). Pods that are not `watched` are
        listed: uncached if they must be `certain`, else from the cache.
        """
        node = session.spec.node_name
        if watched is not None:
            pods = await self.with_gpus(node, watched)
        elif certain:
            pods = await self.pods_on(node)
        else:
            pods = await self.cached_pods_on(node)
        owners = await self._owners.look_up(before.wants_owners if before else ())
        # They count once the pods are gone.
        wanted = memory.volumes and (certain or memory.pods_gone_at is not None)
        attachments = await self._attachments(node) if wanted else ()
        waits = waits_for_room(session, causes)
        return DrainInput(
            node=node,
            session=session.name,
            pods=pods,
            pdbs=tuple(self._caches.pdbs.items.values()),
            owners=owners_of(pods, owners.known | self._daemon_sets()),
            missing_owners=owners.missing,
            attachments=attachments,
            claims=await self._claims_of(memory) if attachments else {},
            no_room=await self._free.without_room(node, pods) if waits else frozenset(),
            severity=worst(causes),
            drain=session.status.drain or DrainStatus(),
            last_active_at=last_active_at,
            dry_run=dry_run,
            own_namespace=own_namespace,
            scope=scope,
            accused=accused,
            certain=certain,
        )

    def _daemon_sets(self) -> dict[str, OwnerView]:
        """Return the cached DaemonSets by UID. The plan requests owners that are not cached."""
        return {
            ds.metadata.uid: OwnerView(
                api_version="apps/v1", kind="DaemonSet", metadata=ds.metadata
            )
            for ds in self._caches.daemon_sets.items.values()
        }

    async def _attachments(self, node: str) -> tuple[VolumeAttachmentView, ...]:
        try:
            found = (await self._api.items(_ATTACHMENTS, VolumeAttachmentView, limit=0)).found
        except ApiError:
            # Not readable: the drain does not wait for volumes to detach.
            return ()
        return tuple(attachment for attachment in found if attachment.spec.node_name == node)

    async def _claims_of(self, memory: DrainMemory) -> dict[str, ClaimView]:
        for claim in memory.volumes:
            if claim in self._claims:
                continue
            namespace, _, name = claim.partition("/")
            # Not readable: the drain does not wait for this volume.
            with suppress(ApiError, BadSegmentError):
                path = object_name.api_path(
                    "/api/v1/namespaces", namespace, "persistentvolumeclaims", name
                )
                self._claims[claim] = await self._api.get(path, ClaimView)
        return {claim: self._claims[claim] for claim in memory.volumes if claim in self._claims}


def owners_of(pods: Iterable[PodView], known: Mapping[str, OwnerView]) -> dict[str, OwnerView]:
    """Return the known owners of the pods and the owners of these, by UID.

    A drain keeps them, so many drains at once must not each keep those of the others.
    """
    found: dict[str, OwnerView] = {}
    for pod in pods:
        owner = pod.metadata.controller
        while owner is not None and owner.uid in known and owner.uid not in found:
            found[owner.uid] = known[owner.uid]
            owner = known[owner.uid].metadata.controller
    return found


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
    """Known owners by UID, and UIDs of owners that no longer exist."""

    known: dict[str, OwnerView]
    missing: frozenset[str]


class OwnerLookup:
    """Reads and caches owners."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._known: dict[str, OwnerView] = {}
        self._missing: set[str] = set()
        self._asked_at: dict[str, float] = {}

    async def look_up(self, wanted: tuple[OwnerWanted, ...]) -> Owners:
        """Read the wanted owners and their own owners; return all that are known."""
        for namespace, reference in wanted:
            await self._read_chain(namespace, reference)
        return Owners(known=dict(self._known), missing=frozenset(self._missing))

    async def _read_chain(self, namespace: str, reference: OwnerReference) -> None:
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
            tolerant.understand(answer.body, OwnerView).value
            if answer is not None and answer.ok
            else None
        )
        if view is not None and view.metadata.uid == uid:
            self._known[uid] = view
            self._missing.discard(uid)
        elif view is not None or (answer is not None and answer.is_not_found(reference.name)):
            self._missing.add(uid)
        else:
            # Not readable: the reference alone is enough for messages.
            self._known[uid] = OwnerView(
                api_version=reference.api_version,
                kind=reference.kind,
                metadata=ObjectMeta(name=reference.name, namespace=namespace, uid=uid),
            )
        return self._known.get(uid)

    async def _get(self, namespace: str, reference: OwnerReference) -> Answer | None:
        """Read an owner. Return None if the reference, which pod authors write, is invalid."""
        if not object_name.is_api_version(reference.api_version) or not _KIND.fullmatch(
            reference.kind
        ):
            return None
        group, kind = reference.api_version, reference.kind.lower()
        plural = _PLURALS.get((group, reference.kind))
        root = "/api/v1" if group == "v1" else f"/apis/{group}"
        try:
            path = object_name.api_path(
                root, "namespaces", namespace, plural or f"{kind}s", reference.name
            )
        except BadSegmentError:
            return None
        answer = await self._api.call(CallQueue.READ, "GET", path)
        # A 404 under a guessed plural does not prove that the owner is gone.
        return None if not plural and not answer.ok else answer

    def _forget_when_many(self) -> None:
        if len(self._asked_at) > _KEPT:
            self._known.clear()
            self._missing.clear()
            self._asked_at.clear()


LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{exclusions.MAINTENANCE_NAMESPACE}/leases"
_GROUP = ".medik8s.io"
_SWEEP_S = 5.0
_REFUSED_S = 60.0
_LEASES_PAGE = 500


class MaintenanceLeases(EdgePart):
    """Keeps `World.maintenance_leases` up to date."""

    def __init__(self, edge: Edge, groups: ApiGroups, *, changed: Callable[[str], None]) -> None:
        super().__init__(edge)
        self._groups = groups
        self._changed = changed
        self._read_at = float("-inf")
        self._failing_since: float | None = None
        self._problem = ""

    async def run(self) -> None:
        """Read the leases again and again until cancelled."""
        while True:
            await self._clock.sleep(await self.sweep())

    def too_old(self) -> str:
        """Return why the leases are too old to allow a disruption; "" if they are fresh."""
        now, failing_since = self._clock.elapsed(), self._failing_since
        return too_old(
            "other operators' maintenance leases",
            quiet_s=max(now - self._read_at, self._groups.overdue_s()),
            unfollowed_s=0.0 if failing_since is None else now - failing_since,
            problem=self._problem,
        )

    async def sweep(self) -> float:
        """Read the leases once; return the seconds until the next read."""
        served = await self._groups.served()
        if not any(group.endswith(_GROUP) for group in served):
            self._take({})
            return _SWEEP_S
        try:
            found = await self._list()
        except ApiError as error:
            # Keep what is known: a lease that cannot be read has not ended.
            self._isolation.note("maintenance", "leases of other operators", error)
            self._problem = str(error)
            if self._failing_since is None:
                self._failing_since = self._clock.elapsed()
            return _REFUSED_S if error.answer.code == 403 else _SWEEP_S
        self._take(found)
        return _SWEEP_S

    async def _list(self) -> dict[str, LeaseView]:
        listed = await self._api.items(LEASES, LeaseView, limit=_LEASES_PAGE)
        return exclusions.leases_by_node(listed.found)

    def _take(self, found: dict[str, LeaseView]) -> None:
        self._read_at, self._failing_since, self._problem = self._clock.elapsed(), None, ""
        before = self._world.maintenance_leases
        self._world.maintenance_leases = found
        for node in before.keys() | found.keys():
            if before.get(node) != found.get(node):
                self._changed(node)
