"""What a PDB will say, judged from the object, and the queue that asks it."""

from typing import Any

import pytest

from rules.api.timestamps import parse_time
from rules.api.writes import EvictPod
from rules.drain.eviction import EvictionKind, EvictionOutcome, judge, matching
from rules.drain.queue import PdbQueue, answered, due, next_due_at, pdb_changed
from tests.support.scenario.drain_objects import pdb, pod

NOW = parse_time("2026-01-01T01:00:00Z") or 0.0
SYNC_FAILED = {
    "observedGeneration": 0,
    "expectedPods": 0,
    "conditions": [
        {
            "type": "DisruptionAllowed",
            "status": "False",
            "reason": "SyncFailed",
            "message": "no scale",
        }
    ],
}
UNREADY = {"conditions": [{"type": "Ready", "status": "False"}]}


@pytest.mark.parametrize(
    ("spec", "status", "reason", "permanent"),
    [
        pytest.param(
            {"maxUnavailable": 1}, SYNC_FAILED, "BudgetSyncFailed", True, id="sync-failed"
        ),
        pytest.param(
            {"maxUnavailable": 1}, {"expectedPods": 0}, "BudgetExpectsNoPods", True, id="bare-pods"
        ),
        pytest.param(
            {"minAvailable": 4},
            {"desiredHealthy": 4, "expectedPods": 4, "currentHealthy": 4},
            "BudgetNeverAllows",
            True,
            id="keeps-all",
        ),
        pytest.param(
            {"minAvailable": "100%"},
            {"desiredHealthy": 9, "expectedPods": 8, "currentHealthy": 8},
            "BudgetNeverAllows",
            True,
            id="keeps-more-than-all",
        ),
        pytest.param({"minAvailable": 3}, {}, "BudgetFull", False, id="full-now"),
        pytest.param({"minAvailable": 3}, {"disruptionsAllowed": 1}, "", False, id="open"),
    ],
)
def test_permanence_is_read_from_the_object(
    spec: dict[str, Any], status: dict[str, Any], reason: str, permanent: bool
) -> None:
    block = judge(pod(), (pdb(spec=spec, status=status),), NOW)
    assert (block.reason if block else "") == reason
    if block is not None:
        assert block.permanent == permanent
        assert block.why
        assert block.remedy


@pytest.mark.parametrize(
    ("policy", "healthy", "desired", "blocked"),
    [
        pytest.param("AlwaysAllow", 0, 3, False, id="always-allow"),
        pytest.param(None, 3, 3, False, id="healthy-budget"),
        pytest.param(None, 1, 3, True, id="unhealthy-budget"),
        pytest.param("IfHealthyBudget", 0, 0, True, id="desired-zero-is-no-health"),
    ],
)
def test_an_unready_pod(policy: str | None, healthy: int, desired: int, blocked: bool) -> None:
    spec = {"minAvailable": desired, "unhealthyPodEvictionPolicy": policy}
    budget = pdb(spec=spec, status={"currentHealthy": healthy, "desiredHealthy": desired})
    assert (judge(pod(status=UNREADY), (budget,), NOW) is not None) == blocked


@pytest.mark.parametrize(
    "status",
    [{"phase": "Pending"}, {"phase": "Succeeded"}, {"phase": "Failed"}],
    ids=["pending", "succeeded", "failed"],
)
def test_the_server_asks_no_pdb_for(status: dict[str, Any]) -> None:
    assert judge(pod(status=status), (pdb("a"), pdb("b")), NOW) is None


def test_a_young_unsynced_pdb_is_not_called_permanent() -> None:
    fresh = pdb(
        created="2026-01-01T00:59:59Z", status={"observedGeneration": 0, "expectedPods": 0}
    )
    block = judge(pod(), (fresh,), NOW)
    assert block is None or not block.permanent


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({}, True),
        (None, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Sideways"}]}, False),
    ],
)
def test_which_pdbs_select_a_pod(selector: dict[str, Any] | None, matches: bool) -> None:
    assert bool(matching(pod(), [pdb(spec={"selector": selector})])) == matches


def eviction(name: str, node: str = "n0", key: str = "team-a/keep") -> EvictPod:
    return EvictPod(node=node, namespace="team-a", name=name, uid=name, pdb=key)


FULL = EvictionOutcome(kind=EvictionKind.BUDGET_FULL)
DONE = EvictionOutcome(kind=EvictionKind.ACCEPTED)


def test_one_in_flight_per_pdb() -> None:
    wanted = [eviction("a"), eviction("b", "n1"), eviction("c", key="team-a/other")]
    queue, sent = due(PdbQueue(), wanted, 0)
    assert [e.name for e in sent] == ["a", "c"]
    queue, sent = due(queue, wanted, 1)
    assert sent == ()
    queue = answered(queue, wanted[0], DONE, 1, 0.5)
    _, sent = due(queue, wanted[1:], 1)
    assert [e.name for e in sent] == ["b"]


def test_pods_without_a_pdb_do_not_wait_for_each_other() -> None:
    wanted = [eviction(name, key="") for name in "abc"]
    queue, sent = due(PdbQueue(), wanted, 0)
    assert len(sent) == 3
    _, again = due(queue, wanted, 0)
    assert again == ()


def test_back_off_grows_to_its_bound_and_belongs_to_the_pdb() -> None:
    queue, waits, now = PdbQueue(), [], 0.0
    wanted = [eviction("a"), eviction("b", "n1")]
    for _ in range(8):
        queue, sent = due(queue, wanted, now)
        assert len(sent) == 1
        queue = answered(queue, sent[0], FULL, now, 0.5)
        assert due(queue, wanted, now)[1] == ()
        at = next_due_at(queue, wanted, now)
        assert at is not None
        waits.append(at - now)
        now = at
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60]


def test_retry_after_is_honoured_beyond_the_bound() -> None:
    stale = EvictionOutcome(kind=EvictionKind.BUDGET_STALE, retry_after_s=120)
    queue, sent = due(PdbQueue(), [eviction("a")], 0)
    queue = answered(queue, sent[0], stale, 0, 0.5)
    assert next_due_at(queue, [eviction("a")], 0) == 120


def test_a_change_of_the_pdb_asks_again_at_once() -> None:
    queue, sent = due(PdbQueue(), [eviction("a")], 0)
    queue = answered(queue, sent[0], FULL, 0, 0.5)
    assert due(queue, [eviction("a")], 0.1)[1] == ()
    assert len(due(pdb_changed(queue, "team-a/keep"), [eviction("a")], 0.1)[1]) == 1


def test_nodes_take_turns_and_a_late_one_does_not_catch_up() -> None:
    queue, order = PdbQueue(), []
    early = [eviction(f"a{i}", "n0") for i in range(20)]
    late = [eviction(f"b{i}", "n1") for i in range(20)]
    for turn in range(12):
        wanted = early if turn < 6 else [*early, *late]
        queue, sent = due(queue, wanted, turn)
        order.append(sent[0].node)
        queue = answered(queue, sent[0], DONE, turn, 0.5)
        early = [e for e in early if e != sent[0]]
        late = [e for e in late if e != sent[0]]
    assert order[:6] == ["n0"] * 6
    assert order[6:] == ["n1", "n0", "n1", "n0", "n1", "n0"]


@pytest.mark.parametrize("every", [1, 2, 3, 4, 5, 7])
def test_a_turn_is_an_eviction_and_not_a_question(every: int) -> None:
    queue, now = PdbQueue(), 0.0
    taken: list[Any] = []
    left = {node: [eviction(f"{node}-{i}", node) for i in range(6)] for node in ("n0", "n1", "n2")}
    questions = 0
    while len(taken) < 9:
        wanted = [e for pods in left.values() for e in pods]
        queue, sent = due(queue, wanted, now)
        questions += 1
        granted = questions % every == 0
        queue = answered(queue, sent[0], DONE if granted else FULL, now, 0.5)
        if granted:
            taken.append(sent[0].node)
            left[sent[0].node].remove(sent[0])
        now = next_due_at(queue, [e for pods in left.values() for e in pods], now) or now
    shares = [taken.count(node) for node in left]
    assert max(shares) - min(shares) <= 1, taken


def test_a_refused_pod_waits_alone_and_the_next_is_asked() -> None:
    refused = EvictionOutcome(kind=EvictionKind.REFUSED)
    wanted = [eviction("a"), eviction("b")]
    queue, sent = due(PdbQueue(), wanted, 0)
    queue = answered(queue, sent[0], refused, 0, 0.5)
    queue, sent = due(queue, wanted, 0)
    assert [e.name for e in sent] == ["b"]
    queue = answered(queue, sent[0], DONE, 0, 0.5)
    assert due(queue, wanted[:1], 1.9)[1] == ()
    assert [e.name for e in due(queue, wanted[:1], 2)[1]] == ["a"]


def test_a_budget_that_is_written_all_the_time_has_every_pod_asked() -> None:
    wanted = [eviction(name) for name in "abcd"]
    queue, asked = PdbQueue(), []
    for now in range(8):
        queue, sent = due(queue, wanted, now)
        asked += [e.name for e in sent]
        queue = answered(queue, sent[0], FULL, now, 0.5)
        queue = pdb_changed(queue, "team-a/keep")
    assert asked == list("abcdabcd")


def test_an_unknown_caller_stops_asking_for_a_while() -> None:
    unknown = EvictionOutcome(kind=EvictionKind.UNAUTHORIZED)
    wanted = [eviction("a", key=""), eviction("b", key="")]
    queue, sent = due(PdbQueue(), wanted, 0)
    queue = answered(queue, sent[0], unknown, 0, 0.5)
    assert due(queue, wanted, 0.9)[1] == ()
    queue = answered(queue, sent[1], unknown, 0, 0.5)
    asked, now = [], 0.0
    while now < 300:
        now = next_due_at(queue, wanted, now) or now
        queue, sent = due(queue, wanted, now)
        for one in sent:
            asked.append(now)
            queue = answered(queue, one, unknown, now, 0.5)
    assert len(asked) <= 20, "twice per step of the back-off"


def test_a_busy_api_server_stops_every_queue() -> None:
    busy = EvictionOutcome(kind=EvictionKind.API_BUSY, retry_after_s=3)
    wanted = [eviction("a"), eviction("b", key="")]
    queue, sent = due(PdbQueue(), wanted, 0)
    for sent_one in sent:
        queue = answered(queue, sent_one, busy, 0, 0.5)
    assert due(queue, wanted, 2.9)[1] == ()
    assert len(due(queue, wanted, 3)[1]) == 2


def test_a_lost_response_frees_its_queue() -> None:
    queue, _ = due(PdbQueue(), [eviction("a")], 0)
    assert due(queue, [eviction("a")], 30)[1] == ()
    assert len(due(queue, [eviction("a")], 61)[1]) == 1
