"""Whether a remediator leads from another namespace: one lease of our name may be alive, no more.

A replica in a pod campaigns in its own namespace, one started by hand in the first of several that
exists; a namespace made later, or a second installation, would make two leaders of one cluster.
The elector asks here before it takes a lease and once more after; renewals do not ask. It only
reads.
"""

from dataclasses import dataclass

import msgspec

from remediator.api import Api
from remediator.pace import Lane
from rules.snapshot import LeaseView
from rules.snapshot_meta import ListMeta

_PATH = "/apis/coordination.k8s.io/v1/leases"
_PAGE = 500
_DURATION_S = 15.0
"""Of a lease that says none."""


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ListMeta = ListMeta()
    items: list[LeaseView] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    version: str
    at: float


class RivalLeases:
    """Leases of the elector's name in other namespaces, and since when each stands still."""

    def __init__(self, api: Api, name: str, *, timeout_s: float) -> None:
        self._api = api
        self._name = name
        self._timeout_s = timeout_s
        self._seen: dict[str, _Seen] = {}

    async def problem(self, namespace: str, now: float) -> str:
        """Why nobody may start to lead in `namespace` now, with the remedy; "" when one may.

        `now` is monotonic: a lease is dead when it did not change for its duration, whatever the
        times in it say.
        """
        query = {"limit": str(_PAGE), "fieldSelector": f"metadata.name={self._name}"}
        found: list[LeaseView] = []
        while True:
            answer = await self._api.call(
                Lane.LEASE, "GET", _PATH, query=query, timeout_s=self._timeout_s
            )
            if not answer.ok:
                return (
                    "Nobody may lead before the leases of all namespaces can be listed "
                    f"({answer.sentence()}); grant the remediator list on leases."
                )
            page = answer.decode(_Page)
            found += page.items or ()
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        for lease in sorted(found, key=lambda lease: lease.metadata.namespace):
            other = lease.metadata.namespace
            if (
                lease.metadata.name == self._name
                and other != namespace
                and self._alive(lease, now)
            ):
                holder = (lease.spec.holder_identity or "")[:200]
                return (
                    f"{holder} leads with the lease {self._name} in namespace {other}, so this "
                    f"replica waits with the one in {namespace}; stop one of the two installations."
                )
        return ""

    def _alive(self, lease: LeaseView, now: float) -> bool:
        namespace, version = lease.metadata.namespace, lease.metadata.resource_version
        known = self._seen.get(namespace)
        if known is None or known.version != version:
            known = self._seen[namespace] = _Seen(version=version, at=now)
        duration = lease.spec.lease_duration_seconds or _DURATION_S
        return bool(lease.spec.holder_identity) and now - known.at <= duration
