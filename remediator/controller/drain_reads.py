"""One uncached look at a node under drain: its pods and what surrounds them.

`drains` calls this before every plan. Everything is read from the API server at this moment,
except PDBs (their watch wakes the queue) and owners (see `owners`).
"""

from __future__ import annotations

from contextlib import suppress

from remediator.controller.gpus import DeviceClaims, FreeGpus
from remediator.controller.owners import OwnerLookup
from remediator.kube.answer import ApiError
from remediator.kube.api import Api
from remediator.kube.caches import Caches
from remediator.kube.clock import Clock
from rules.api.nodes import QuarantineView
from rules.api.object_name import BadSegmentError, api_path, field_selector
from rules.api.pods import ClaimView, OwnerView, PodView, VolumeAttachmentView, unreadable_pod
from rules.api.quarantine import Cause, DrainStatus
from rules.catalog.reason import Severity
from rules.drain.drain_plan import DrainInput, DrainPlan, OwnerWanted
from rules.drain.memory import DrainMemory
from rules.session.causes import worst

_PAGE = 250
_ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"


class DrainLook:
    """Reads what `plan_drain` takes."""

    def __init__(self, api: Api, clock: Clock, caches: Caches) -> None:
        self._api = api
        self._caches = caches
        self._owners = OwnerLookup(api, clock)
        self._devices = DeviceClaims(api, clock)
        self._free = FreeGpus(api, clock, caches, self._devices)
        self._claims: dict[str, ClaimView] = {}

    async def pods_on(self, node: str) -> tuple[PodView, ...]:
        """All pods bound to the node, uncached; ApiError when they cannot be listed."""
        return await self._pods(node, limit=_PAGE)

    async def pods_seen(self, node: str) -> tuple[PodView, ...]:
        """The node's pods from the API server's watch cache, one answer; ApiError when it fails.

        Cheap enough to ask for weeks and perhaps a moment old: to report by, never to act on.
        """
        return await self._pods(node, limit=0, resourceVersion="0")

    async def _pods(self, node: str, *, limit: int, **query: str) -> tuple[PodView, ...]:
        """A pod of which not even the name is understood stands in the plan as one in doubt."""
        query["fieldSelector"] = field_selector("spec.nodeName", node)
        listed = await self._api.items("/api/v1/pods", PodView, query=query, limit=limit)
        found = await self._devices.counted(listed.found)
        return (*found, *(unreadable_pod(name, node) for name in listed.unread))

    async def pods_and_owners(self, node: str) -> tuple[tuple[PodView, ...], dict[str, OwnerView]]:
        """The node's pods and their owner chains."""
        pods = await self.pods_on(node)
        wanted = {
            c.uid: OwnerWanted(
                api_version=c.api_version,
                kind=c.kind,
                namespace=pod.metadata.namespace,
                name=c.name,
                uid=c.uid,
            )
            for pod in pods
            if pod.gpus and not pod.finished and (c := pod.metadata.controller) is not None
        }
        owners = await self._owners.look_up(tuple(wanted.values()))
        return pods, owners.known

    async def look(
        self,
        session: QuarantineView,
        causes: tuple[Cause, ...],
        memory: DrainMemory,
        before: DrainPlan | None,
        *,
        last_active_at: float | None,
        dry_run: bool,
        own_namespace: str = "",
    ) -> DrainInput:
        """One look at the session's node; ApiError when its pods cannot be listed. `causes`: those
        in effect (`rules.session.causes`).
        """
        node = session.spec.node_name
        pods = await self.pods_on(node)
        owners = await self._owners.look_up(before.wants_owners if before else ())
        attachments = await self._attachments(node) if memory.volumes else ()
        severity = worst(causes)
        fatal = severity == Severity.FATAL
        return DrainInput(
            node=node,
            session=session.name,
            pods=pods,
            pdbs=tuple(self._caches.pdbs.items.values()),
            owners=owners.known | self._daemon_sets(),
            missing_owners=owners.missing,
            attachments=attachments,
            claims=await self._claims_of(memory) if attachments else {},
            no_room=frozenset() if fatal else await self._free.without_room(node, pods),
            severity=severity,
            drain=session.status.drain or DrainStatus(),
            last_active_at=last_active_at,
            dry_run=dry_run,
            own_namespace=own_namespace,
        )

    def _daemon_sets(self) -> dict[str, OwnerView]:
        """DaemonSets that exist, by UID; one that the cache lacks is asked for by the plan."""
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
            # Without the permission nothing is known about volumes, and nothing waits for them.
            return ()
        return tuple(attachment for attachment in found if attachment.spec.node_name == node)

    async def _claims_of(self, memory: DrainMemory) -> dict[str, ClaimView]:
        for claim in memory.volumes:
            if claim in self._claims:
                continue
            namespace, _, name = claim.partition("/")
            # Without an answer nothing is known about the volume, and nothing waits for it.
            with suppress(ApiError, BadSegmentError):
                path = api_path("/api/v1/namespaces", namespace, "persistentvolumeclaims", name)
                self._claims[claim] = await self._api.get(path, ClaimView)
        return {claim: self._claims[claim] for claim in memory.volumes if claim in self._claims}
