"""A silent node that is powered off with its pods on it: from there until its power is on again.

An eviction ends nothing where no kubelet hears of it. So the power goes off first, by a power
cycle whose object says so itself, and has to say so for a while, with the node silent all along.
Only then, and only if the policy says so, the out-of-service taint lets Kubernetes end the pods,
and the power stays off until they are gone. The taint comes off when the node is back with
another boot, or with the step or the session. Every stage is on record (`RepairFence`) before
what follows from it, so that a restart and another leader go on here. Called by
`rules.session.repair.phase`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from rules.api.names import ANNOTATION_HOLD
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Phase, QuarantineStatus, RepairAttempt, RepairFence, RepairState
from rules.api.repair.out_of_service import is_ours, is_out_of_service
from rules.api.repair.writes import WriteRepairObject
from rules.api.sentences import bounded, some
from rules.api.timestamps import format_time, parse_time, utc
from rules.api.writes import Decision, Evicting
from rules.catalog.why_not import Refusal, WhyNot
from rules.session import status as st
from rules.session.case import Case, is_fresh
from rules.session.halts import unreachable
from rules.session.repair.beginning import is_wanted
from rules.session.repair.entry import changed, ended_as, reading, with_entry
from rules.session.repair.following import FOLLOWED_S, follow_call
from rules.session.repair.requests import action_of
from rules.session.repair.tainting import back_in_service, out_of_service

OFF_S: Final = 30.0
"""How long the power is seen off before anything rests on it: whoever was switching it on when it
was asked for needs some seconds to say so."""
PODS_S: Final = 300.0
"""How long the power stays off for the pods: the collector of Kubernetes comes by every 20 s, and
what it did not end by then tolerates the taint, or a finalizer holds it."""


@dataclass(frozen=True, kw_only=True)
class Fence:
    """One decision about one fence that was asked for."""

    case: Case
    status: QuarantineStatus
    attempt: RepairAttempt
    halt: Refusal | None
    until: float
    """When the step's time is over."""

    @property
    def stage(self) -> RepairFence:
        """How far it is."""
        return self.attempt.fence or RepairFence()

    def followed(self) -> Decision:
        """The next stage."""
        case, attempt = self.case, self.attempt
        boot = case.node.boot_id
        if boot and boot != attempt.before.boot_id:
            return self._back()
        if not unreachable(case):
            why = "its kubelet speaks again with the boot of before, so the power was not off"
            return ended_as(case, self.status, attempt, RepairState.FAILED, why)
        followed = follow_call(case, attempt)
        if followed.needs is not None:
            return reading(followed.needs)
        if followed.gave_up:
            why = f"{attempt.adapter} gave up: {followed.gave_up}"
            return ended_as(case, self.status, attempt, RepairState.FAILED, why)
        if self.stage.on_at:
            return self._waits("its new boot is awaited", before=followed.writes)
        if followed.powered_off:
            return self._off()
        if not self.stage.off_at:
            return self._waits("its power is not seen off yet")
        off = back_in_service(case.node, case.session.name, _known(case))
        anew = RepairFence(silent_since=self.stage.silent_since)
        return self._reached(anew, "PowerNotOff", "its power is on again", before=off)

    def _back(self) -> Decision:
        """Nothing of it is out of service any more, and nothing keeps its power off."""
        case = self.case
        if off := back_in_service(case.node, case.session.name, _known(case)):
            return self._waits("the node is back, its taint comes off", before=off)
        over = msgspec.structs.replace(self.stage, on_at=self.stage.on_at or format_time(case.now))
        followed = follow_call(case, changed(self.attempt, fence=over))
        if followed.needs is not None:
            return reading(followed.needs)
        return self._waits("the node is back, its verdict is awaited", before=followed.writes)

    def _off(self) -> Decision:
        """Believed after a while; then the pods, if the policy says so; then the power again."""
        case, stage = self.case, self.stage
        since = parse_time(stage.off_at)
        if since is None:
            seen = msgspec.structs.replace(stage, off_at=format_time(case.now))
            return self._reached(seen, "PowerOff", f"{self.attempt.adapter} says that it is off")
        if case.now < since + OFF_S:
            at = since + OFF_S
            return self._waits(f"its power is off, which is believed at {utc(at)}", wake_at=at)
        action = action_of(case.policy, self.attempt)
        if action is not None and action.create is not None:
            return self._on(f"{self.attempt.adapter} ends its pods and switches it on")
        if not is_ours(case.node, _known(case)) and (why := self._unwanted()):
            return self._on(why)
        pods = case.seen.plan.bound if case.seen.plan is not None else None
        if pods is None:
            return self._waits("its power is off, its pods are listed", looks=True)
        if not pods:
            return self._on("no pod is left that needs it off")
        return self._with_pods(pods)

    def _with_pods(self, pods: tuple[str, ...]) -> Decision:
        case, stage = self.case, self.stage
        if stage.taint_at and case.now - (parse_time(stage.taint_at) or case.now) >= PODS_S:
            return self._on(f"{some(pods)} did not go within {PODS_S / 60:.0f} min")
        if is_out_of_service(case.node):
            clause = f"its power stays off until its pods are gone ({some(pods)})"
            return self._waits(clause, looks=True)
        if is_ours(case.node, _known(case)):
            return self._on("somebody took the out-of-service taint off")
        if (held := self._held()) is not None:
            clause = f"its power is off, the out-of-service taint waits: {held.why}"
            return self._waits(clause, refusal=held, looks=True)
        if not stage.taint_at:
            decided = msgspec.structs.replace(stage, taint_at=format_time(case.now))
            return self._reached(decided, "OutOfService", f"the taint ends {some(pods)}")
        if not is_fresh(case.node):
            why = "the out-of-service taint is due"
            return Decision(step="ReadNode", because=why, needs_fresh_node=True)
        write = out_of_service(case.node, case.session.name, self.attempt)
        return self._waits("its power is off, its pods end", before=(write,), looks=True)

    def _unwanted(self) -> str:
        """Why nobody asks any more that its pods end, read again before the taint is decided on
        and before it is set; "" where somebody does.
        """
        case, fence = self.case, self.case.policy.repair.fence
        if fence is None or not fence.out_of_service:
            return "the policy leaves its pods where they are (fence.outOfService)"
        if case.settled or not is_wanted(case) or not case.drains:
            return "the policy or a person does not ask for it any more"
        return ""

    def _held(self) -> Refusal | None:
        """What stops harm, read again before the taint is decided on and before it is set."""
        if self.halt is not None:
            return self.halt
        case = self.case
        if case.session.spec.hold or ANNOTATION_HOLD in case.node.annotations:
            return Refusal(reason=WhyNot.HOLD, why="a person holds the node")
        return None

    def _on(self, why: str) -> Decision:
        """The power may come back."""
        over = msgspec.structs.replace(self.stage, on_at=format_time(self.case.now))
        return self._reached(over, "PowerOn", f"its power may come back: {why}")

    def _reached(
        self,
        stage: RepairFence,
        step: str,
        said: str,
        before: tuple[WriteRepairObject, ...] = (),
    ) -> Decision:
        """The stage on record; what follows from it comes with the next decision."""
        status = with_entry(self.status, changed(self.attempt, fence=stage))
        status = st.noted(status, step, said, self.case.now)
        looks = Evicting.WATCH if stage.on_at or not stage.off_at else Evicting.LOOK
        return self.case.decision(
            "Fence", status, because=said, before=before, evicting=looks, wake_at=self.case.now
        )

    def _waits(
        self,
        clause: str,
        *,
        before: tuple[WriteRepairObject, ...] = (),
        refusal: Refusal | None = None,
        looks: bool = False,
        wake_at: float | None = None,
    ) -> Decision:
        case, attempt = self.case, self.attempt
        asked_at = utc(parse_time(attempt.started_at) or case.now)
        sentence = (
            f"{attempt.step} asked of {attempt.adapter} at {asked_at} for "
            f"{case.asked_for}, with its pods on it; {clause}, it has until "
            f"{utc(self.until)}."
        )
        message = f"Not out of service: {refusal.why}." if refusal is not None else ""
        status = st.with_refusal(self.status, case.now, refusal, message)
        status = st.enter(status, Phase.REPAIRING, bounded(sentence), case.now)
        return case.decision(
            "AwaitFence",
            status,
            because=clause,
            blocked_by=refusal.reason if refusal is not None else None,
            before=before,
            evicting=Evicting.LOOK if looks else Evicting.WATCH,
            wake_at=min(self.until, case.now + FOLLOWED_S, wake_at or self.until),
        )


def _known(case: Case) -> tuple[QuarantineView, ...]:
    return (case.session, *case.seen.siblings)
