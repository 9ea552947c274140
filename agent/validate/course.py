"""The order of a test: look, memory, copies, pairs, all at once, look again.

Called by `agent.commands.validate`; asks the processes of `crew` and judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from agent.validate import messages
from agent.validate.crew import Crew, Died, Heard, Hung
from agent.validate.reading import Reading, ReadingError, look
from rules.text.counted import count
from rules.validate.findings import (
    CheckId,
    Counters,
    Findings,
    MemorySeen,
    RateSeen,
    Stop,
    Stopped,
    Subject,
    SumsSeen,
)
from rules.validate.refusal import occupied

TOGETHER_SHARE: Final = 0.2
"""Of the time that is given to work together: how long each direction is copied together."""
ALONE: Final = ((CheckId.HOST_TO_DEVICE, False), (CheckId.DEVICE_TO_HOST, True))
TOGETHER: Final = (
    (CheckId.HOST_TO_DEVICE_TOGETHER, False),
    (CheckId.DEVICE_TO_HOST_TOGETHER, True),
)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to test and how long to wait. Seconds."""

    mode: str
    """`real` or `sim:FILE`."""
    chosen: Sequence[str]
    expected: int | None
    time_s: float
    even_if_busy: bool
    deadline_s: float
    """For one step of one GPU, beyond the time it was told to take."""


class Course:
    """One run over the GPUs that `first` showed. `tell` gets a line about each step."""

    def __init__(self, plan: Plan, first: Reading, tell: Callable[[str], None]) -> None:
        self._plan = plan
        self._first = first
        self._tell = tell
        self._names = {subject.uuid: subject for subject in first.subjects}
        self._stopped: list[Stopped] = []
        self._memory: list[MemorySeen] = []
        self._rates: list[RateSeen] = []
        self._sums: list[SumsSeen] = []
        self._during: Sequence[Counters] = ()
        self._seen: set[str] | None = None
        self._trouble: list[str] = []
        self._well: list[str] = list(plan.chosen)

    def run(self) -> Findings:
        """Do everything, GPUs that drop out apart."""
        crew = Crew(self._plan.mode, self._plan.chosen)
        try:
            self._open(crew)
            if not self._trouble:
                self._patterns(crew)
                self._copies(crew)
                self._pairs(crew)
                self._together(crew)
                self._burn(crew)
        finally:
            for gpu in crew.close():
                self._tell(f"the process that tests {self._name(gpu)} cannot be ended; it is left")
        return self._findings()

    def _open(self, crew: Crew) -> None:
        self._tell(f"starting CUDA on {count(len(self._well), 'GPU')}")
        for gpu, heard in self._ask(
            crew, CheckId.START, {gpu: self._opening(gpu) for gpu in self._well}
        ):
            if isinstance(heard, messages.Opened):
                self._seen = (self._seen or set()) | set(heard.seen)
                busy = occupied(self._names[gpu], heard.free, heard.total)
                if busy and not self._plan.even_if_busy:
                    self._trouble.append(busy)
            elif isinstance(heard, messages.Unusable):
                self._trouble.append(f"Nothing was tested: {heard.message}.")
                self._well.remove(gpu)

    def _patterns(self, crew: Crew) -> None:
        self._tell("writing patterns over the memory and reading them back, all GPUs at once")
        orders = {gpu: messages.Remember() for gpu in self._well}
        for gpu, heard in self._ask(crew, CheckId.MEMORY, orders):
            if isinstance(heard, messages.Remembered):
                seen = MemorySeen(
                    gpu=gpu,
                    tested=heard.tested,
                    total=heard.total,
                    wrong_words=heard.wrong,
                    first_wrong=heard.first,
                    bits=heard.bits,
                )
                self._memory.append(seen)

    def _copies(self, crew: Crew) -> None:
        self._tell("copying between host and each GPU alone")
        for check, to_host in ALONE:
            for gpu in list(self._well):
                self._rated(self._ask(crew, check, {gpu: messages.Copy(to_host)}), check)

    def _pairs(self, crew: Crew) -> None:
        if len(self._well) > 1:
            self._tell("copying from each GPU to each other, one pair after the other")
        for source in self._plan.chosen:
            for target in self._plan.chosen:
                if source != target and {source, target} <= set(self._well):
                    self._pair(crew, source, target)

    def _pair(self, crew: Crew, source: str, target: str) -> None:
        """One copy. Where it fails the far end is asked alone: the fault may be its own."""
        orders = {source: messages.CopyToPeer(target)}
        self._rated(self._ask(crew, CheckId.PEER, orders, peer=target), CheckId.PEER, target)
        if source in self._well:
            return
        probe = {target: messages.Copy(to_host=True)}
        answers = self._ask(crew, CheckId.DEVICE_TO_HOST, probe)
        if all(isinstance(heard, messages.Copied) for _, heard in answers):
            return
        crew.renew(source)
        again = crew.ask({source: self._opening(source)}, self._plan.deadline_s)
        if isinstance(again.get(source), messages.Opened):
            # Only the far end is gone: what the near end said was about that.
            self._stopped = [
                one for one in self._stopped if (one.gpu, one.peer) != (source, target)
            ]
            self._well.append(source)

    def _together(self, crew: Crew) -> None:
        seconds = TOGETHER_SHARE * self._plan.time_s
        self._tell("copying between host and all GPUs at once")
        for check, to_host in TOGETHER:
            orders = {gpu: messages.Copy(to_host, seconds) for gpu in self._well}
            self._rated(self._ask(crew, check, orders, seconds), check)

    def _burn(self, crew: Crew) -> None:
        seconds = self._plan.time_s
        self._tell(f"computing the same on all GPUs at once for {seconds:g} s")
        orders = {gpu: messages.Burn(seconds) for gpu in self._well}
        for gpu, heard in self._ask(crew, CheckId.CHECKSUM, orders, seconds, meanwhile=self._peek):
            if isinstance(heard, messages.Burned):
                self._sums.append(
                    SumsSeen(
                        gpu=gpu,
                        launches=heard.launches,
                        first=heard.first,
                        differing=heard.differing,
                    )
                )

    def _peek(self) -> None:
        """Read NVML while the GPUs are at work. A reading that fails costs the link's checks."""
        try:
            self._during = self._of_chosen(look(self._plan.mode, self._plan.deadline_s))
        except ReadingError as error:
            self._tell(f"no look at the links under load: {error}")

    def _findings(self) -> Findings:
        self._tell("reading the counters again")
        after: Sequence[Counters] = ()
        after_read = False
        try:
            after = self._of_chosen(look(self._plan.mode, self._plan.deadline_s))
            after_read = True
        except ReadingError as error:
            self._tell(str(error))
        return Findings(
            subjects=self._first.subjects,
            chosen=self._plan.chosen,
            expected=self._plan.expected,
            counted=self._first.counted,
            seen_by_cuda=None if self._seen is None else sorted(self._seen),
            stopped=self._stopped,
            memory=self._memory,
            rates=self._rates,
            sums=self._sums,
            before=self._of_chosen(self._first),
            during=self._during,
            after=after,
            after_read=after_read,
            trouble=self._trouble,
        )

    def _ask(
        self,
        crew: Crew,
        check: CheckId,
        orders: Mapping[str, messages.Order],
        seconds: float = 0.0,
        *,
        peer: str = "",
        meanwhile: Callable[[], None] | None = None,
    ) -> list[tuple[str, Heard]]:
        """Every answer; a GPU whose step had no value is written down and leaves the course."""
        within_s = self._plan.deadline_s + seconds
        heard = crew.ask(orders, within_s, meanwhile)
        for gpu, said in heard.items():
            stopped = _stop(check, gpu, peer, said)
            if stopped is not None:
                self._stopped.append(stopped)
                self._well.remove(gpu)
                self._tell(f"{check} on {self._name(gpu)} did not end well: {stopped.why}")
        return [(gpu, heard[gpu]) for gpu in orders if gpu in heard]

    def _rated(self, found: Sequence[tuple[str, Heard]], check: CheckId, peer: str = "") -> None:
        for gpu, heard in found:
            if isinstance(heard, messages.Copied):
                link = self._link(gpu, peer) if peer else ""
                self._rates.append(
                    RateSeen(check=check, gpu=gpu, peer=peer, gigabytes=heard.gigabytes, link=link)
                )

    def _link(self, one: str, other: str) -> str:
        places = {subject.uuid: place for place, subject in enumerate(self._first.subjects)}
        links = self._first.links
        return links[places[one]][places[other]] if links else ""

    def _of_chosen(self, reading: Reading) -> list[Counters]:
        return [one for one in reading.counters if one.gpu in self._plan.chosen]

    def _opening(self, gpu: str) -> messages.Open:
        return messages.Open(gpu, self._names[gpu].pci)

    def _name(self, gpu: str) -> str:
        subject: Subject = self._names[gpu]
        return f"GPU {subject.index} ({subject.pci})"


def _stop(check: CheckId, gpu: str, peer: str, said: Heard) -> Stopped | None:
    match said:
        case Hung(seconds):
            return Stopped(check=check, gpu=gpu, peer=peer, why=Stop.HUNG, seconds=seconds)
        case Died(status):
            return Stopped(check=check, gpu=gpu, peer=peer, why=Stop.DIED, code=status)
        case messages.Trouble(call, code, name):
            return Stopped(
                check=check,
                gpu=gpu,
                peer=peer,
                why=Stop.FAILED,
                call=call,
                code=code,
                name=name,
            )
        case _:
            return None
