"""When the NVML child counts as hung, is killed and restarted, in virtual time."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.nvml.messages import (
    EXIT_REINITIALISE,
    INIT_CALL,
    Calling,
    Finish,
    Note,
    Refresh,
    Reinitialise,
    SourceReason,
)
from agent.nvml.supervisor import (
    Emit,
    Kill,
    Send,
    Spawn,
    State,
    StopOrder,
    child_reported,
    close,
    exited,
    gsp_timeout_seen,
    next_deadline,
    refresh,
    reinitialise,
    release,
    resume,
    tick,
)
from rules.judge.observation import CallFailed, EventKind, GpuEvent, Inventory, SourceState
from tests.support.scenario.examples import examples


def heard(message):
    return partial(child_reported, message=message)


def ended(status):
    return partial(exited, status=status)


def approved(reason):
    return partial(release, reason=reason)


HELLO = heard(Inventory(at=0.0, driver="580.1"))
CALL = heard(Calling(call="nvmlDeviceGetTemperatureV", gpu="GPU-3"))
NO_DRIVER = heard(CallFailed(at=0.0, call=INIT_CALL, code=9, of_driver=True))
XID_119 = heard(GpuEvent(at=0.0, kind=EventKind.XID, data=119, gpu="GPU-3"))


class Bench:
    """Runs the state machine in virtual time and records its outputs."""

    def __init__(self):
        self.state = State()
        self.now = 1000.0
        self.log = []
        self.feed(tick)

    def feed(self, *inputs):
        """Feed inputs now and return their outputs."""
        new = []
        for event in inputs:
            self.state, outputs = event(self.state, self.now)
            new += [(self.now, output) for output in outputs]
        self.log += new
        return [output for _, output in new]

    def run(self, seconds):
        """Let time pass with a tick at every deadline, as in the link."""
        end = self.now + seconds
        outputs: list[Any] = []
        while True:
            due = next_deadline(self.state)
            if due is None or due > end:
                self.now = end
                return outputs
            self.now = max(self.now, due)
            outputs += self.feed(tick)

    def times(self, kind):
        return [at for at, output in self.log if isinstance(output, kind)]


@pytest.fixture
def bench():
    """A child that sent its inventory and then entered a call."""
    bench = Bench()
    bench.feed(HELLO, CALL)
    return bench


def states(outputs):
    return [(o.status.state, o.status.reason) for o in outputs if isinstance(o, Emit)]


DOWN_HUNG = (SourceState.DOWN, SourceReason.CALL_HUNG)
UP = (SourceState.UP, SourceReason.ANSWERING)
RELEASED = (SourceState.RELEASED, SourceReason.RELEASED)


def test_the_source_is_up_after_the_first_message_of_the_child():
    bench = Bench()
    assert bench.times(Spawn) == [1000.0]
    assert states(bench.feed(HELLO)) == [UP]
    assert states(bench.feed(HELLO)) == [], "the same state is reported once"


def test_a_call_is_hung_after_five_seconds_and_named_with_its_gpu(bench):
    assert bench.run(4.9) == []
    (emitted,) = bench.run(0.2)
    assert states([emitted]) == [DOWN_HUNG]
    assert "nvmlDeviceGetTemperatureV for GPU-3 has not returned" in emitted.status.message


def test_the_source_is_up_again_when_a_hung_call_returns(bench):
    bench.run(60)
    assert states(bench.feed(CALL)) == [UP]
    assert bench.times(Kill) == []


def test_waiting_for_events_is_not_hanging(bench):
    for _ in range(100):
        bench.feed(heard(Calling(call="nvmlEventSetWait_v2", within_s=2.0)))
        assert bench.run(2.1) == []


def test_no_message_between_calls_is_a_hang(bench):
    bench.feed(heard(Note("hm")))
    assert states(bench.run(10)) == [DOWN_HUNG]


def test_a_child_that_sends_nothing_is_hung(bench):
    bench = Bench()
    assert states(bench.run(14.9)) == []
    assert states(bench.run(0.2)) == [DOWN_HUNG]


def test_a_child_that_hung_before_its_first_answer_is_up_only_with_that_answer():
    bench = Bench()
    bench.run(20)
    assert states(bench.feed(CALL)) == []
    assert states(bench.feed(HELLO)) == [UP]


def test_a_hung_child_is_killed_after_two_minutes_and_replaced_only_when_reaped(bench):
    called = bench.now
    bench.run(600)
    assert bench.times(Kill) == [called + 120.0]
    assert len(bench.times(Spawn)) == 1, "unreaped: it may be stuck in the kernel"
    assert states(bench.feed(ended(-9))) == [(SourceState.DOWN, SourceReason.CHILD_DIED)]
    bench.run(1.1)
    assert len(bench.times(Spawn)) == 2


def test_killing_happens_once_an_hour(bench):
    first = bench.run(121) and bench.times(Kill)[0]
    bench.feed(ended(-9))
    bench.run(2)
    bench.feed(HELLO, CALL)
    bench.run(3 * 3600)
    assert bench.times(Kill) == [first, first + 3600.0]


@pytest.mark.parametrize("seen", [gsp_timeout_seen, XID_119], ids=["kernel log", "NVML event"])
def test_after_a_gsp_timeout_it_waits_ten_minutes(bench, seen):
    seen_at = bench.now
    bench.feed(seen, CALL)
    bench.run(1200)
    assert bench.times(Kill) == [seen_at + 600.0]


def test_a_gsp_timeout_seen_during_the_hang_counts(bench):
    bench.run(100)
    bench.feed(gsp_timeout_seen)
    seen_at = bench.now
    bench.run(1200)
    assert bench.times(Kill) == [seen_at + 600.0]


INIT_CODES = pytest.mark.parametrize(
    ("code", "reason", "restarts"),
    [
        (9, SourceReason.DRIVER_ABSENT, False),
        (12, SourceReason.DRIVER_ABSENT, False),
        (4, SourceReason.NO_ACCESS, False),
        (17, SourceReason.NO_ACCESS, False),
        (18, SourceReason.DRIVER_MISMATCH, True),
        (999, SourceReason.DRIVER_ABSENT, True),
        (20, SourceReason.NVML_FAILED, False),
    ],
)


def failed(code):
    return heard(CallFailed(at=0.0, call="nvmlInitWithFlags", code=code, of_driver=True)), ended(3)


@pytest.mark.parametrize(
    "before", [(HELLO, ended(1)), failed(10)], ids=["worked", "other trouble"]
)
@INIT_CODES
def test_a_failure_that_began_in_this_container_may_need_a_new_one(before, code, reason, restarts):
    bench = Bench()
    bench.feed(*before)
    bench.run(10)
    *_, emitted = bench.feed(*failed(code))
    assert (emitted.status.reason, emitted.status.restart_agent) == (reason, restarts)


def test_a_fault_of_one_gpu_is_not_the_reason_of_an_exit(bench):
    lost = CallFailed(at=0.0, call="nvmlDeviceGetFieldValues", code=15, gpu="GPU-3")
    (emitted,) = bench.feed(heard(lost), ended(-11))
    assert emitted.status.reason is SourceReason.CHILD_DIED


def test_restarts_back_off_to_a_minute():
    bench = Bench()
    waits = []
    for _ in range(8):
        died = bench.now
        bench.feed(ended(1))
        bench.now = next_deadline(bench.state) or 0.0
        bench.feed(tick)
        waits.append(bench.now - died)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_child_that_ran_a_minute_is_restarted_quickly():
    bench = Bench()
    for _ in range(5):
        bench.feed(ended(1))
        bench.now = next_deadline(bench.state) or 0.0
        bench.feed(tick, HELLO)
    bench.now += 60
    bench.feed(CALL, ended(1))
    assert next_deadline(bench.state) == bench.now + 1


def test_an_unloaded_driver_gets_a_new_child_at_once(bench):
    bench.now += 300
    outputs = bench.feed(CALL, ended(EXIT_REINITIALISE))
    assert [type(output) for output in outputs] == [Spawn]


def test_a_requested_restart_is_quiet_and_rate_limited(bench):
    assert bench.feed(reinitialise) == [Send(Reinitialise())]
    assert [type(o) for o in bench.feed(ended(EXIT_REINITIALISE))] == [Spawn]
    bench.feed(HELLO, CALL)
    assert bench.feed(ended(EXIT_REINITIALISE)) == []
    assert [type(o) for o in bench.run(1.0)] == [Spawn]


def test_an_arriving_gpu_ends_the_wait_for_an_absent_driver(bench):
    for _ in range(6):
        bench.feed(NO_DRIVER, ended(3))
        bench.run(next_deadline(bench.state) - bench.now)
    bench.feed(NO_DRIVER, ended(3))
    assert next_deadline(bench.state) >= bench.now + 30
    assert bench.feed(reinitialise) == []
    assert [type(output) for output in bench.run(1.0)] == [Spawn]


def test_release_and_resume(bench):
    assert bench.feed(approved("driver upgrade")) == [Send(Finish())]
    assert bench.feed(approved("again")) == [], "idempotent"
    assert states(bench.feed(ended(0))) == [RELEASED]
    assert bench.run(86400) == []
    assert [type(output) for output in bench.feed(resume)] == [Spawn]
    assert bench.feed(resume) == []


def test_resume_waits_for_the_end_of_the_old_child(bench):
    bench.feed(approved("upgrade"), resume)
    assert len(bench.times(Spawn)) == 1
    assert [type(output) for output in bench.feed(ended(0))] == [Spawn]


def test_a_hung_child_is_reported_down_and_released_when_it_ends(bench):
    bench.feed(approved("upgrade"))
    assert DOWN_HUNG in states(bench.run(61))
    assert states(bench.feed(ended(0))) == [RELEASED]


def test_release_of_a_child_that_is_waiting_to_be_started():
    bench = Bench()
    bench.feed(ended(1))
    assert states(bench.feed(approved("upgrade"))) == [RELEASED]
    assert bench.run(600) == []


def test_close_leaves_a_hung_child_running(bench):
    bench.feed(partial(close, timeout_s=60.0))
    assert bench.run(61)[-1] == StopOrder(clean=False)
    assert bench.times(Kill) == []


def test_refresh_is_passed_on_only_to_a_running_child(bench):
    assert bench.feed(refresh) == [Send(Refresh())]
    bench.feed(approved("upgrade"))
    assert bench.feed(refresh) == []


INPUTS = st.one_of(
    st.sampled_from(
        [
            HELLO,
            CALL,
            XID_119,
            approved("r"),
            resume,
            gsp_timeout_seen,
            refresh,
            tick,
        ]
    ),
    st.sampled_from([0, 3, EXIT_REINITIALISE, -9, -11]).map(ended),
)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(INPUTS, st.floats(0, 4000)), max_size=40))
def test_never_two_children_never_an_early_or_frequent_kill(steps):
    bench = Bench()
    track = {"alive": True, "entered": bench.now, "gsp": -1e9, "killed": -1e9}

    def check(act, argument):
        begin = len(bench.log)
        act(argument)
        for at, output in bench.log[begin:]:
            if isinstance(output, Spawn):
                assert not track["alive"]
                track.update(alive=True, entered=at)
            if isinstance(output, Kill):
                assert track["alive"]
                assert at >= track["entered"] + 120
                assert at >= track["gsp"] + 600 - 1e-6
                assert at >= track["killed"] + 3600 - 1e-6
                track["killed"] = at

    for event, seconds in steps:
        what = getattr(event, "func", event)
        if what in (exited, child_reported) and not track["alive"]:
            continue
        if what is exited:
            track["alive"] = False
        if what is child_reported:
            track["entered"] = bench.now
        if what is gsp_timeout_seen or event is XID_119:
            track["gsp"] = bench.now
        check(bench.feed, event)
        check(bench.run, seconds)


def test_a_driver_that_fails_for_days_is_retried_every_minute():
    """1024 failures, one a minute, take 17 hours; the agent never gives up."""
    bench = Bench()
    bench.state = bench.state._replace(attempts=5000)
    assert states(bench.feed(ended(1)))
    assert (next_deadline(bench.state) or 0.0) - bench.now == 60.0
