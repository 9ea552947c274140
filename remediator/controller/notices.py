"""Write and withdraw the notices of drains on pods (`rules.drain.notice`)."""

from remediator.controller.drain_reads import DrainReader
from remediator.kube.answer import ApiError, Result
from remediator.world import Edge, EdgePart
from rules.catalog.why_not import Refusal
from rules.drain import notice
from rules.drain.drain_plan import DrainPlan
from rules.policy import policy

_SWEEP_S = 5.0
_NEXT_POD = {Result.DONE, Result.CONFLICT, Result.GONE, Result.REFUSED}
"""After these results the next pod gets its notice. After others the next pass tries again: a slow
API server does not delay evictions."""


class Notices(EdgePart):
    """The notices of one process. After a restart, sessions show which nodes may have some."""

    def __init__(self, edge: Edge, *, reader: DrainReader) -> None:
        super().__init__(edge)
        self._reader = reader
        self._sent: dict[str, dict[str, float | None]] = {}
        """The answered notices of this process, by node and pod UID. A node stays here until its
        notices are withdrawn, so a deleted session needs no record."""
        self._clean: set[str] = set()
        """UIDs of sessions that no longer drain and whose notices are withdrawn."""

    async def send(self, plan: DrainPlan) -> Refusal | None:
        """Write the plan's notices, each once; return why the API server refused one."""
        refused: Refusal | None = None
        for write in plan.notify:
            if plan.notice_until is not None and self._clock.now() >= plan.notice_until:
                break
            known = self._sent.setdefault(write.node, {})
            if write.uid in known and known[write.uid] == write.drain_at:
                continue
            sent = await self._gateway.send(write)
            if sent.result in {Result.DONE, Result.REFUSED}:
                known[write.uid] = write.drain_at
            if sent.result is Result.REFUSED and sent.answer is not None:
                refused = notice.refusal(write, sent.answer.code, sent.answer.sentence())
            if sent.result not in _NEXT_POD:
                break
        return refused

    async def run(self) -> None:
        """Withdraw notices of ended drains until cancelled."""
        while True:
            await self._clock.sleep(_SWEEP_S)
            if self._may_act():
                await self.sweep()

    async def sweep(self) -> None:
        """Withdraw the notices on nodes that no session drains any more."""
        now = self._clock.now()
        ended: dict[str, set[str]] = {}
        for node, sessions in self._world.sessions.items():
            for session in filter(notice.had_notice, sessions):
                if notice.to_withdraw(session, self._in_shadow(node), now):
                    ended.setdefault(node, set()).add(session.metadata.uid)
                elif self._drains(node):
                    # Of an earlier leader.
                    self._sent.setdefault(node, {})
        self._clean &= set().union(*ended.values())
        for node in {*self._sent, *(node for node in ended if ended[node] - self._clean)}:
            if self._drains(node):
                continue
            with self._isolation.guard("notices", f"node {node}"):
                if await self._withdraw(node):
                    self._sent.pop(node, None)
                    self._clean |= ended.get(node, set())

    def _in_shadow(self, node: str) -> bool:
        """Whether an operator chose Shadow for the node, which stops its drain."""
        shadow = policy.shadow_of(chosen := self._world.policy_of(node)) is not None
        return shadow and not policy.by_accident(chosen)

    def _drains(self, node: str) -> bool:
        return notice.drains(self._world.sessions.get(node, ()), self._in_shadow(node))

    async def _withdraw(self, node: str) -> bool:
        """Withdraw all notices on one node; False if one must be tried again."""
        try:
            pods = await self._reader.pods_on(node)
        except ApiError as error:
            self._isolation.note("notices", f"node {node}", error)
            return False
        done = True
        for write in notice.withdrawn(node, pods, self._clock.now()):
            sent = await self._gateway.send(write)
            done &= sent.done or sent.result in {Result.REFUSED, Result.GONE, Result.CONFLICT}
        return done
