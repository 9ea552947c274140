"""The clock of the remediator, corrected to the API server's time, and limits of calls.

Nothing else in the remediator reads a clock of the machine. Wall time is read once and then
advanced by CLOCK_BOOTTIME, so that a step of the machine's clock moves no deadline. It is
corrected by the `Date` headers of API answers, because other machines wrote the times in objects
through that server.
"""

import asyncio
import enum
import time
from collections import deque
from collections.abc import Mapping
from typing import Final

_REMEMBERED: Final = 15
"""Answers that count. More than half of them must agree before the clock moves, which takes about
15 s with a lease read every 2 s."""
_TOLERANCE_S: Final = 3.0
"""Clocks of several API servers may differ by 2 s; the Date header has whole seconds."""
_NEGLIGIBLE_S: Final = 1.5
"""Below this difference two clocks agree."""
_DRIFT_S: Final = 1.0
_ONE_VOICE_S: Final = 1.0
"""Answers closer together than this that agree with each other count as one."""
_SLOW_S: Final = 2.0
"""The Date of an answer that took longer is not precise enough."""


class SkewEstimate:
    """The difference of the API server's clock to this machine's, from most recent answers.

    A single wrong `Date` header (a proxy's error page, one of three API servers with a wrong
    clock) must not move the clock. The median counts, if more than half of the answers are near
    it.
    """

    def __init__(self, first_agreeing: int = 3) -> None:
        """`first_agreeing` answers must agree at the start if they contradict this machine's
        clock; 1 for a command, which ends after a few answers.
        """
        self.jumps = 0
        """How often most answers agreed on another clock than before."""
        self.contradictions = 0
        """Answers with a Date that contradicted the clock of that moment."""
        self.undecided = False
        """Answers contradict this machine's clock, and too few of them agree yet: the time is
        the machine's and should not be written to objects."""
        self.doubt = ""
        """Why the time is too uncertain to act on, a clause; "" if it is certain, and before the
        first answer."""
        self._first_agreeing = first_agreeing
        self._believed: float | None = None
        self._samples: deque[tuple[float, float]] = deque(maxlen=_REMEMBERED)
        """Local time of each answer, and its server time minus local time."""

    def add(self, server_date: float, sent_at: float, received_at: float) -> None:
        """Add one answer; its Date header was written between sending and receiving.

        `sent_at` and `received_at` are local times; all three in seconds since the epoch.
        """
        if received_at - sent_at > _SLOW_S:
            return
        offset_s = server_date + 0.5 - (sent_at + received_at) / 2
        for at, known_s in reversed(self._samples):
            if not 0 <= received_at - at < _ONE_VOICE_S:
                break
            if abs(known_s - offset_s) <= _TOLERANCE_S:
                return
        if self._believed is not None and abs(offset_s - self._believed) > _TOLERANCE_S:
            self.contradictions += 1
        self._samples.append((received_at, offset_s))
        self._settle()

    def seconds(self) -> float:
        """Seconds to add to this machine's time; 0 if the clocks agree."""
        believed_s = self._believed or 0.0
        return 0.0 if abs(believed_s) <= _NEGLIGIBLE_S else believed_s

    def _settle(self) -> None:
        offsets = sorted(offset_s for _, offset_s in self._samples)
        median_s = offsets[len(offsets) // 2]
        agreeing = sum(abs(one - median_s) <= _TOLERANCE_S for one in offsets)
        if 2 * agreeing > len(offsets):
            if self._believed is None:
                if agreeing >= self._first_agreeing or abs(median_s) <= _NEGLIGIBLE_S:
                    self._believed = median_s
            elif abs(median_s - self._believed) > _DRIFT_S:
                self.jumps += abs(median_s - self._believed) > _TOLERANCE_S
                self._believed = median_s
        believed_s, self.doubt = self._believed, ""
        self.undecided = believed_s is None
        if believed_s is None:
            apart_s = self._samples[-1][1]
            self.doubt = (
                f"the API server's Date is {abs(apart_s):.0f} s "
                f"{'ahead of' if apart_s > 0 else 'behind'} this machine's clock and too few "
                "answers agree yet"
            )
        elif 2 * sum(abs(one - believed_s) <= _TOLERANCE_S for one in offsets) <= len(offsets):
            self.doubt = "the Date headers of the API server's answers contradict one another"


async def heard(event: asyncio.Event, within_s: float | None) -> bool:
    """Wait until the event is set, at most that long (None: for ever); return whether it was set
    in time. A timeout sets the event, too.

    This costs a quarter of `asyncio.timeout`, which cancels the waiting task.
    """
    if event.is_set() or within_s is None:
        return await event.wait()
    in_time = True

    def late() -> None:
        nonlocal in_time
        in_time = event.is_set()
        event.set()

    timer = asyncio.get_running_loop().call_later(within_s, late)
    try:
        await event.wait()
    finally:
        timer.cancel()
    return in_time


class Clock:
    """The machine's clocks, corrected to the API server's."""

    def __init__(self, first_agreeing: int = 3) -> None:
        """`first_agreeing` as in `SkewEstimate`."""
        self._wall_anchor = time.time()
        self._boot_anchor = self.elapsed()
        self.skew = SkewEstimate(first_agreeing=first_agreeing)

    def elapsed(self) -> float:
        """CLOCK_BOOTTIME in seconds."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def local(self) -> float:
        """This machine's wall time as it was at the start, advanced by CLOCK_BOOTTIME."""
        return self._wall_anchor + (self.elapsed() - self._boot_anchor)

    def now(self) -> float:
        """Seconds since the epoch, in the API server's time."""
        return self.local() + self.skew.seconds()

    def learn(self, server_date: float, sent_at: float) -> None:
        """Add the Date of an answer just received to a call sent at `sent_at` (`local`)."""
        before, known = self.skew.jumps, self.skew.seconds()
        self.skew.add(server_date, sent_at, self.local())
        if self.skew.jumps != before:
            import structlog  # here, for commands need no log and it takes long

            structlog.get_logger().warning(
                "clock",
                message="most answers of the API server agree on another time than before; check "
                "the clocks of its machines",
                moved_s=round(self.skew.seconds() - known, 1),
            )

    async def sleep(self, seconds: float) -> None:
        """Sleep for that long."""
        await asyncio.sleep(max(0.0, seconds))


class CallQueue(enum.StrEnum):
    """A kind of call with its own rate limit and connections; the value is a metric label."""

    LEASE = "lease"
    TAINT = "mark"
    EVICT = "evict"
    READ = "read"
    OPEN = "open"
    """New sessions and causes, which must be stored before a quarantine."""
    STATUS = "status"
    """The state of sessions, which must be stored before an eviction or a repair."""
    RECORD = "record"
    """Records and Events, which wait for everything else in a storm."""


RATES: Final = {
    CallQueue.TAINT: 500.0,
    CallQueue.EVICT: 250.0,
    CallQueue.READ: 1200.0,
    CallQueue.OPEN: 600.0,
    CallQueue.STATUS: 600.0,
    CallQueue.RECORD: 1200.0,
}
"""Calls per second to the API server: a storm of 1,000 nodes is tainted within two seconds. Each
taint or eviction costs up to two reads and two records, so those queues have twice the sum. A
queue without a rate is not limited."""


class RateLimiter:
    """A token bucket for each queue, with a burst of a tenth of a second's worth."""

    def __init__(self, per_second: Mapping[CallQueue, float], clock: Clock) -> None:
        self._clock = clock
        self._interval_s = {call_queue: 1.0 / rate for call_queue, rate in per_second.items()}
        self._next_at = dict.fromkeys(per_second, float("-inf"))

    def reserve(self, call_queue: CallQueue) -> float:
        """Take one token; return the seconds to wait before using it."""
        interval_s, now = self._interval_s[call_queue], self._clock.elapsed()
        earliest = now - max(0.1, interval_s)
        self._next_at[call_queue] = max(self._next_at[call_queue], earliest) + interval_s
        return max(0.0, self._next_at[call_queue] - now)

    async def acquire(self, call_queue: CallQueue) -> None:
        """Wait until a call of this queue may be sent."""
        if call_queue in self._interval_s and (wait_s := self.reserve(call_queue)) > 0:
            await self._clock.sleep(wait_s)


_LEAST_IN_FLIGHT: Final = 2
"""One slow call does not stop its queue."""
_ADAPT_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 10.0
"""Upper limit of Retry-After; the API server itself asks for at most 8 s."""


class InFlightLimit:
    """How many calls of one queue may be in flight, adapted to the load of the API server.

    Additive increase, multiplicative decrease, as TCP does: an overloaded server halves the limit,
    and every second with an answer raises it by one. Times are those of `Clock.elapsed`.
    """

    def __init__(self, most: int) -> None:
        self._most = self.number = most
        self._halved_at = self._raised_at = self._paused_until = float("-inf")

    def answered(self, now: float) -> None:
        """Raise the limit by one, at most once a second."""
        if self.number < self._most and now - max(self._halved_at, self._raised_at) >= _ADAPT_S:
            self.number, self._raised_at = self.number + 1, now

    def overloaded(self, sent_at: float, now: float, retry_after_s: float) -> None:
        """Halve the limit, and pause for `retry_after_s`.

        A call that was sent less than a second after the last halving does not count: the server
        may have answered it before it noticed the smaller number of calls.
        """
        if sent_at - self._halved_at >= _ADAPT_S:
            self.number, self._halved_at = max(_LEAST_IN_FLIGHT, self.number // 2), now
        self._paused_until = max(self._paused_until, now + min(retry_after_s, _LONGEST_PAUSE_S))

    def pause_s(self, now: float) -> float:
        """Return the seconds until the next call may be sent."""
        return max(0.0, self._paused_until - now)


class Slots:
    """Slots for the calls in flight of one queue, as many as the limit allows."""

    def __init__(self, most: int) -> None:
        self.limit = InFlightLimit(most)
        self._free = asyncio.Semaphore(most)
        self._all = most
        """Free and taken slots; until enough calls end there may be more than the limit."""

    async def __aenter__(self) -> None:
        await self._free.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._all -= 1
        await self.adapt()

    async def pause(self, clock: Clock) -> None:
        """Wait as long as the API server asked for with its last Retry-After."""
        while (wait_s := self.limit.pause_s(clock.elapsed())) > 0:
            await clock.sleep(wait_s)

    async def adapt(self) -> None:
        """Add free slots, or remove them as far as they are free. It does not wait."""
        while self._all < self.limit.number:
            self._free.release()
            self._all += 1
        while self._all > self.limit.number and not self._free.locked():
            await self._free.acquire()
            self._all -= 1
