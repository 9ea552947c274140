"""Whatever the collectors report, judgement stands: it never raises, stays small, and repeats
itself.
"""

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rules.api.health import MAX_INCIDENTS, MAX_OBJECT_BYTES, HealthStatus
from rules.api.object_name import is_label_value
from rules.catalog.reason import Level, Severity, is_reason_code
from rules.catalog.thresholds import DEFAULT_RULES
from rules.judge.health_object import Difference, differs, publish
from rules.judge.health_status import assess
from rules.judge.judge import judge, next_deadline
from rules.judge.observation import KernelLineSeen, Observation, SourceName, Tick
from rules.judge.restore import restore
from rules.judge.state import MAX_GPUS, MAX_REPEATS
from rules.kernel_log.record import KernelLine, LineKind
from tests.support.scenario.examples import examples
from tests.support.scenario.judge_strategies import IDENTITY, PREAMBLE, START, lines, run, steps

QUICK = settings(
    max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@QUICK
@given(steps)
def test_any_observations_are_survived_and_leave_a_small_sound_state(
    sequence: list[tuple[Observation, float]],
) -> None:
    state, now = run(sequence)
    assert len(state.incidents) <= MAX_INCIDENTS
    assert len(state.gpus) <= MAX_GPUS
    assert len(state.repeats) <= MAX_REPEATS
    assert len({incident.id for incident in state.incidents}) == len(state.incidents)
    for incident in state.incidents:
        assert len(incident.evidence) <= 5
        assert all(len(line.encode()) <= 512 for line in incident.evidence)
        assert incident.active or incident.closed_by
        if incident.sources == (SourceName.HOST,):
            assert incident.row.level is Level.REPORT
            assert incident.row.severity is not Severity.FATAL
    after, _ = judge(state, Tick(at=now), now, DEFAULT_RULES)
    due = next_deadline(after)
    assert due is None or due > now, "a deadline that passed would wake the agent for ever"
    publication = publish(state, assess(state, now), now, IDENTITY)
    status = publication.status
    raw = msgspec.json.encode(status)
    assert len(raw) <= MAX_OBJECT_BYTES
    assert len(status.message.encode()) <= 1024
    assert all(is_reason_code(c.reason) for c in publication.conditions)
    assert all(v is None or is_label_value(v) for v in publication.labels.values())
    fatal = any(i.active and i.row.severity is Severity.FATAL for i in state.incidents)
    assert (status.health == "Unhealthy") == fatal
    assert differs(publication, publication) is Difference.NONE


@QUICK
@given(steps)
def test_what_is_published_restores_the_same_incidents(
    sequence: list[tuple[Observation, float]],
) -> None:
    state, now = run(sequence)
    status = publish(state, assess(state, now), now, IDENTITY).status
    again = msgspec.json.decode(msgspec.json.encode(status), type=HealthStatus)
    restored = restore(again, now, boot_id=state.node.boot_id, node_name="n1")
    assert {i.id for i in restored.incidents} == {i.id for i in status.incidents}
    assert {i.id for i in restored.incidents if i.active} == {
        i.id for i in status.incidents if i.active
    }
    judge(restored, Tick(at=now), now, DEFAULT_RULES)


@QUICK
@given(steps, st.binary(max_size=40))
def test_a_damaged_status_never_stops_the_agent(
    sequence: list[tuple[Observation, float]], junk: bytes
) -> None:
    state, now = run(sequence)
    text = junk.decode("latin-1")
    status = publish(state, assess(state, now), now, IDENTITY).status
    spoiled = msgspec.structs.replace(
        status,
        driver_version=text,
        incidents=tuple(
            msgspec.structs.replace(i, reason=text, klass=text, closes_on=text, first_seen=text)
            for i in status.incidents
        ),
        gpus=tuple(
            msgspec.structs.replace(g, recovery_action=text, pci=text) for g in status.gpus
        ),
    )
    restored = restore(spoiled, now, boot_id="boot-1", node_name="n1")
    after, _ = judge(restored, Tick(at=now), now, DEFAULT_RULES)
    publish(after, assess(after, now), now, IDENTITY)


@QUICK
@given(st.lists(st.tuples(lines, st.floats(0.0, 400.0)), max_size=25))
def test_a_reader_that_cannot_count_finds_the_same_faults(
    recorded: list[tuple[KernelLine, float]],
) -> None:
    found = []
    for sequence in (0, -1):
        state, _now = run(
            [
                (
                    KernelLineSeen(
                        at=START, sequence=sequence, boot_id="boot-1", lookback=False, line=line
                    ),
                    gap,
                )
                for line, gap in recorded
            ]
        )
        found.append([(i.row, i.active, i.count, i.pci, i.xids) for i in state.incidents])
    assert found[0] == found[1]


@QUICK
@given(st.lists(st.tuples(lines, st.booleans()), max_size=25))
def test_replaying_the_kernel_log_changes_nothing(recorded: list[tuple[KernelLine, bool]]) -> None:
    seen = [
        KernelLineSeen(
            at=START, sequence=n + len(PREAMBLE), boot_id="boot-1", lookback=lookback, line=line
        )
        for n, (line, lookback) in enumerate(recorded)
    ]
    state, now = run([(observation, 0.0) for observation in seen])
    again = state
    for observation in seen:
        again, _ = judge(again, observation, now, DEFAULT_RULES)
    assert again.incidents == state.incidents


@QUICK
@given(
    st.lists(
        st.sampled_from([43, 45, 46, 48, 63, 64, 79, 94, 95, 109, 119, 149]),
        min_size=1,
        max_size=5,
        unique=True,
    ).flatmap(lambda numbers: st.tuples(st.just(numbers), st.permutations(numbers)))
)
def test_members_of_a_burst_may_come_in_any_order(orders: tuple[list[int], list[int]]) -> None:
    rows = []
    for order in orders:
        state, _now = run(
            [
                (
                    KernelLineSeen(
                        at=START,
                        sequence=n,
                        boot_id="boot-1",
                        lookback=False,
                        line=KernelLine(kind=LineKind.XID, text="x", xid=xid, pci="0000:10:00"),
                    ),
                    0.0,
                )
                for n, xid in enumerate(order)
            ]
            + [(Tick(at=START), 10.0)]
        )
        assert len(state.incidents) == 1
        rows.append((state.incidents[0].row, set(state.incidents[0].xids)))
    assert rows[0] == rows[1]


@QUICK
@given(steps)
def test_software_and_unknown_numbers_alone_never_take_a_node(
    sequence: list[tuple[Observation, float]],
) -> None:
    benign = {13, 31, 43, 45, 999}
    kept = [
        (observation, gap)
        for observation, gap in sequence
        if isinstance(observation, KernelLineSeen)
        and observation.line.kind is LineKind.XID
        and observation.line.xid in benign
    ]
    state, _ = run(kept)
    assert all(i.row.level == "Report" for i in state.incidents)
