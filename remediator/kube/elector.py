"""Leader election on a Lease: the leader writes, the other replicas keep their caches warm.

The gateway checks `may_write` and `may_disrupt` before every write. All times are CLOCK_BOOTTIME,
so that neither a step of the clock nor a suspended process leads to two leaders.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from remediator.kube.answer import NO_ANSWER, Answer, HeldError
from remediator.kube.api import Api
from remediator.kube.clock import CallQueue, Clock
from rules.api import nodes, timestamps
from rules.api.nodes import LeaderStatus, LeaseSpec, LeaseView

_LOG = structlog.get_logger()

LEASE_NAME = "gpuward-remediator"
LEASE_S = 15.0
RENEW_S = 10.0
RETRY_S = 2.0
"""Duration, deadline and interval of Kubernetes' own components."""
_LONGEST_LEASE_S = 4 * LEASE_S
"""A lease that is not renewed for this long is free, whatever its own duration. gpuward always
writes `LEASE_S`; another client may have written a day."""
_NOT_READY_S = 0.1
_ASIDE_S = 5 * RETRY_S
"""Another replica would take a free lease within this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A lease as last seen, and when this process first saw it like that."""

    spec: LeaseSpec
    version: str
    seen_at: float

    @property
    def ends_at(self) -> float:
        """When it is free unless it is renewed."""
        return self.seen_at + min(self.spec.lease_duration_seconds or LEASE_S, _LONGEST_LEASE_S)


class Elector:
    """Acquires, renews and releases the Lease."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        *,
        namespace: str,
        identity: str,
        ready: Callable[[], bool],
        time_known: Callable[[], bool],
        on_start: Callable[[str], None],
        on_stop: Callable[[], None],
        annotations: Callable[[], dict[str, str]] = dict,
    ) -> None:
        """A replica that is not `ready` does not campaign. `on_start` gets the renewTime of the
        previous leader. `annotations` returns the status of the leader for the Lease.

        No lease is taken before `time_known`, because a leader writes times from which deadlines
        count. It is called after the lease was read, because the time is known from answers.
        """
        self.problem = ""
        self.holder = ""
        self.leader_status: LeaderStatus = nodes.WELL
        """The status of the leader, from the Lease as last read."""
        self.no_other_replica = False
        """No other replica took the lease while it was offered."""
        self._stepped_aside = False
        self._api = api
        self._clock = clock
        self.namespace = namespace
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._identity = identity
        self._ready = ready
        self._time_known = time_known
        self._on_start = on_start
        self._on_stop = on_stop
        self._annotations = annotations
        self._held: Held | None = None
        self._leading = False
        self._renewed_at = float("-inf")
        self._aside_until = float("-inf")

    def may_write(self) -> bool:
        """Whether this replica leads and its lease has not expired."""
        return self._leading and self._clock.elapsed() - self._renewed_at < LEASE_S

    def may_disrupt(self) -> bool:
        """Whether the last successful renewal began less than 10 s ago."""
        return self._leading and self._clock.elapsed() - self._renewed_at < RENEW_S

    def step_aside(self) -> None:
        """Release the lease for a while, because the own node is to be drained."""
        self._aside_until = self._clock.elapsed() + _ASIDE_S

    async def run(self) -> None:
        """Campaign until cancelled."""
        while True:
            await self.campaign()
            ready = self._leading or self._ready()
            await self._clock.sleep(min(RETRY_S, self._free_in_s()) if ready else _NOT_READY_S)

    async def release(self) -> None:
        """At shutdown, release the lease, so that the other replica does not wait."""
        if not self._leading:
            return
        self._stop("released")
        await self._give_up()

    async def campaign(self) -> None:
        """Renew or take the lease once, if possible."""
        began = self._clock.elapsed()
        if not self.may_write() and self._leading:
            self._stop("the lease was not renewed in time")
        if began < self._aside_until:
            if self._leading:
                self._stop("stepping aside")
                self._stepped_aside = True
                await self._give_up()
            return
        if not self._leading and not self._ready():
            return
        answer = await self._api.call(
            CallQueue.LEASE, "GET", f"{self._path}/{LEASE_NAME}", timeout_s=RENEW_S / 2
        )
        if answer.code == 404:
            if self._may_take():
                await self._write(began, None, "POST", self._path)
        elif answer.ok:
            await self._consider(began, answer.decode(LeaseView))
        else:
            self._note(f"The lease cannot be read: {answer.sentence()}.")

    def _free_in_s(self) -> float:
        """Seconds until the lease of another replica ends, if it is not renewed."""
        if self._leading or self._held is None:
            return RETRY_S
        left_s = self._held.ends_at - self._clock.elapsed()
        return left_s + _NOT_READY_S if left_s > 0 else RETRY_S

    def _may_take(self) -> bool:
        return self._leading or self._time_known()

    async def _consider(self, began: float, lease: LeaseView) -> None:
        version = lease.metadata.resource_version
        if self._held is None or self._held.version != version:
            # After the answer: the leader may have renewed it while this read was under way.
            seen_at = self._clock.elapsed()
            self._held = Held(spec=lease.spec, version=version, seen_at=seen_at)
        self.holder = lease.spec.holder_identity or ""
        self.leader_status = nodes.leader_status(lease.metadata.annotations)
        mine = self.holder == self._identity
        stated_s = lease.spec.lease_duration_seconds or LEASE_S
        free = not self.holder or began > self._held.ends_at
        if (mine or free) and self._may_take():
            await self._write(began, lease, "PUT", f"{self._path}/{LEASE_NAME}")
            return
        if self._leading:
            self._stop(f"{self.holder} took the lease")
        if stated_s <= _LONGEST_LEASE_S:
            self.problem = ""
            return
        self._note(
            f"Lease {self.namespace}/{LEASE_NAME} is held by {self.holder} for {stated_s:.0f} s, "
            f"which no gpuward-remediator asks for. It is taken after {_LONGEST_LEASE_S:.0f} s "
            f"without a renewal; to end it now: kubectl delete lease {LEASE_NAME} "
            f"-n {self.namespace}"
        )

    async def _write(self, began: float, lease: LeaseView | None, method: str, path: str) -> None:
        spec = lease.spec if lease else LeaseSpec()
        before = spec.renew_time or ""
        mine = spec.holder_identity == self._identity
        now = timestamps.format_micro_time(self._clock.now())
        transitions = (spec.lease_transitions or 0) + (0 if mine or lease is None else 1)
        body = self._body(
            LeaseSpec(
                holder_identity=self._identity,
                lease_duration_seconds=int(LEASE_S),
                acquire_time=spec.acquire_time if mine and spec.acquire_time else now,
                renew_time=now,
                lease_transitions=transitions,
            ),
            lease,
            self._annotations(),
        )
        answer = await self._send(began, method, path, body)
        if not answer.ok:
            if answer.code == 404 and method == "POST":
                self._note(
                    f"There is no namespace {self.namespace} for the lease; create it, or pass "
                    "--namespace NAME."
                )
            elif answer.code != 409:
                self._note(f"The lease cannot be written: {answer.sentence()}.")
            return
        if not mine:
            self.no_other_replica = self._stepped_aside and not spec.holder_identity
            self._stepped_aside = False
        self.problem, self.holder = "", self._identity
        self._renewed_at = began
        if not self._leading:
            self._leading = True
            _LOG.info("leading", identity=self._identity)
            # Also if an earlier process of this identity held it.
            self._on_start(before)

    async def _give_up(self) -> None:
        began = self._clock.elapsed()
        answer = await self._api.call(
            CallQueue.LEASE, "GET", f"{self._path}/{LEASE_NAME}", timeout_s=RETRY_S
        )
        if not answer.ok:
            return
        lease = answer.decode(LeaseView)
        if lease.spec.holder_identity != self._identity:
            return
        spec = msgspec.structs.replace(lease.spec, holder_identity="", lease_duration_seconds=1)
        await self._send(began, "PUT", f"{self._path}/{LEASE_NAME}", self._body(spec, lease, {}))

    async def _send(self, read_at: float, method: str, path: str, body: dict[str, Any]) -> Answer:
        """Write the Lease, unless it was read long ago: this process may have been suspended, and
        another replica may hold the Lease by now.
        """

        def last_check() -> None:
            if self._clock.elapsed() - read_at >= RENEW_S:
                raise HeldError(f"it was read more than {RENEW_S:.0f} s ago")

        try:
            return await self._api.call(
                CallQueue.LEASE,
                method,
                path,
                body=body,
                timeout_s=RENEW_S / 2,
                before_send=last_check,
            )
        except HeldError as held:
            return Answer(code=NO_ANSWER, failure=str(held))

    def _body(
        self, spec: LeaseSpec, lease: LeaseView | None, annotations: dict[str, str]
    ) -> dict[str, Any]:
        # Replaces the annotations of the previous holder, too.
        metadata: dict[str, Any] = {"name": LEASE_NAME, "namespace": self.namespace}
        if annotations:
            metadata["annotations"] = annotations
        if lease is not None:
            metadata["resourceVersion"] = lease.metadata.resource_version
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": msgspec.to_builtins(spec),
        }

    def _stop(self, why: str) -> None:
        self._leading = False
        _LOG.warning("not leading any more", why=why)
        self._on_stop()

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            _LOG.warning("election", problem=problem)
        self.problem = problem
