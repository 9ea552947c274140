"""The owner of a pod that was made to go is told so, in the pod's own namespace."""

from __future__ import annotations

from remediator.edge import EdgePart
from rules.api.writes import DeletePod, EvictPod
from rules.drain.owners_told import owner_told
from rules.session.causes import causes_in_effect


class OwnersTold(EdgePart):
    """Tells of evictions that were accepted and of deletions by force: never waited for."""

    def tell(self, gone: EvictPod | DeletePod) -> None:
        """`gone` was accepted; a dry run took nobody away, and a session that is gone says
        nothing.
        """
        if isinstance(gone, EvictPod) and gone.dry_run:
            return
        with self._isolation.guard("owners", f"pod {gone.namespace}/{gone.name}"):
            session = self._world.caches.quarantines.items.get(gone.session)
            if session is None:
                return
            causes = causes_in_effect(session, self._world.snapshot())
            health = self._world.healths.get(gone.node)
            verdict = health.status if health is not None and not health.doubt else None
            event = owner_told(gone, session.name, causes, verdict, self._clock.now())
            self._telling.tell(event)
