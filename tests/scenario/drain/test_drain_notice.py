"""Pods are notified before a drain evicts the first one (policy `drain.notice`)."""

from itertools import pairwise
from typing import Any

import pytest

from rules.api import names, timestamps
from rules.api import writes as d
from rules.policy.policy import Policy
from tests.support.scenario.session_world import ROOMY, World, kill_points, policy_of

NODE = "n0"
NOTICE_S = 120.0
KEY = names.ANNOTATION_DRAIN_AT


def policy(mode: str = "Enforce", pods: Any = (), **drain: object) -> Policy:
    drain = {"settle": "0s", "gangWindow": "0s", "notice": "2m", **drain}
    return policy_of(mode=mode, budget=ROOMY, drain=drain, pods=list(pods))


def fleet(**chosen: Any) -> World:
    world = World(policy(**chosen))
    world.add_nodes(3)
    for index in range(2):
        world.add_pod(f"train-{index}", NODE, owner=("batch/v1", "Job", "train"), grace=2)
    world.add_pod("staying", NODE, owner=("apps/v1", "DaemonSet", "log"))
    world.add_daemonset_owner("DaemonSet-team-a-log")
    return world


def notices(world: World) -> dict[str, str]:
    """The annotation of each pod that has it."""
    return {
        name: at
        for (_, name), pod in world.pods.items()
        if (at := pod["metadata"].get("annotations", {}).get(KEY))
    }


def planned(world: World, name: str) -> list[str]:
    """The status of the pod's condition."""
    conditions = world.pods["team-a", name]["status"]["conditions"]
    return [c["status"] for c in conditions if c["type"] == names.CONDITION_DRAIN_PLANNED]


def sent_at(world: World, kind: type[d.Write]) -> list[float]:
    return [at for at, write, _, status in world.sent if isinstance(write, kind) and status < 300]


def test_each_leaving_pod_is_notified_once_and_evicted_at_the_time_that_it_was_given() -> None:
    world = fleet()
    world.fail_until(NODE, "Draining")
    world.run(30)
    given = notices(world)
    assert given.keys() == {"train-0", "train-1"}
    assert planned(world, "train-0") == ["True"]
    assert "the pods were notified" in world.message(NODE).lower()
    ends = world.session(NODE).status.until
    assert set(given.values()) == {ends}
    world.run_until(NODE, "Quarantined", limit=300)
    evicted = sent_at(world, d.EvictPod)
    assert len(evicted) == 2
    assert min(evicted) >= (timestamps.parse_time(ends) or 0)
    assert min(evicted) - max(sent_at(world, d.NotifyPod)) >= NOTICE_S - 5
    assert len(sent_at(world, d.NotifyPod)) == 2, "once for each pod"


@pytest.mark.slow
def test_a_leader_that_dies_at_any_write_continues_the_notice() -> None:
    world = fleet()
    world.incident(NODE)
    died = kill_points(world, lambda: world.run(200, step=2))
    assert sum(isinstance(write, d.NotifyPod) for write, _ in died) == 2
    for write, left in died:
        left.restart()
        left.run(260, step=2)
        assert left.phase(NODE) == "Quarantined", write
        notified = {w.uid for w in left.writes(d.NotifyPod) if isinstance(w, d.NotifyPod)}
        assert len(notified) == 2, write
        assert min(sent_at(left, d.EvictPod)) - max(sent_at(left, d.NotifyPod)) >= 60, write
        assert not notices(left)


def test_a_release_during_the_notice_withdraws_it() -> None:
    for restarts in (False, True):
        world = fleet()
        world.fail_until(NODE, "Draining")
        world.run(20)
        assert len(notices(world)) == 2
        if restarts:
            world.restart()
        session = world.quarantines[world.session(NODE).name]
        session["spec"]["release"] = {"by": "ada", "reason": "mine"}
        world.touch(session)
        world.run(30)
        assert not world.is_quarantined(NODE)
        assert not notices(world)
        assert planned(world, "train-0") == ["False"]
        assert not world.writes(d.EvictPod)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_deleted_session_withdraws_its_notices(restarts: bool) -> None:
    world = fleet()
    world.fail_until(NODE, "Draining")
    world.run(20)
    if restarts:
        world.restart()
        world.run(10)
    del world.quarantines[world.session(NODE).name]
    world.run(30)
    assert not notices(world)
    assert not world.writes(d.EvictPod)


def test_shadow_withdraws_the_notices_of_a_drain_and_enforce_writes_them_again() -> None:
    world = fleet()
    world.fail_until(NODE, "Draining")
    world.run(20)
    before = notices(world)
    world.policy = policy(mode="Shadow")
    world.run(300)
    assert not notices(world)
    assert planned(world, "train-0") == ["False"]
    withdrawn = len(world.writes(d.NotifyPod))
    assert withdrawn == 4, "two notices, each withdrawn once"
    assert not world.writes(d.EvictPod)
    world.policy = policy()
    world.run(10)
    after = notices(world)
    assert after.keys() == before.keys()
    for name, at in after.items():
        assert (timestamps.parse_time(at) or 0) - (timestamps.parse_time(before[name]) or 0) > 290
    world.run_until(NODE, "Quarantined", limit=300)
    assert min(sent_at(world, d.EvictPod)) >= (timestamps.parse_time(after["train-0"]) or 0)


@pytest.mark.parametrize("wait", ["1h", None])
def test_a_pod_that_may_complete_is_notified_if_its_eviction_has_a_time(wait: str | None) -> None:
    rule = {"selector": "app=web", "strategy": "WaitCompleted"}
    world = fleet(pods=[{**rule, "maxWait": wait} if wait else rule])
    world.fail_until(NODE, "Draining")
    world.run(30)
    assert len(notices(world)) == (2 if wait else 0)
    world.run(3500, step=10)
    assert not world.writes(d.EvictPod)
    world.run(300, step=5)
    assert len(sent_at(world, d.EvictPod)) == (2 if wait else 0), "maxWait follows the notice"


def test_a_session_that_drains_no_longer_withdraws_its_notices() -> None:
    world = fleet()
    world.fail_until(NODE, "Draining")
    world.run(20)
    session = world.quarantines[world.session(NODE).name]
    session["spec"]["level"] = "Cordon"
    world.touch(session)
    world.run(30)
    assert world.phase(NODE) != "Draining"
    assert not notices(world)


def test_a_pause_moves_the_time_of_the_notice() -> None:
    world = fleet()
    world.fail_until(NODE, "Draining")
    world.run(20)
    before = notices(world)
    world.pause()
    world.run(300)
    assert not world.writes(d.EvictPod)
    world.pauses.clear()
    world.run(10)
    after = notices(world)
    assert after.keys() == before.keys()
    for name, at in after.items():
        assert (timestamps.parse_time(at) or 0) - (timestamps.parse_time(before[name]) or 0) > 290
    world.run_until(NODE, "Quarantined", limit=300)


def test_shadow_writes_no_notice() -> None:
    world = fleet(mode="Shadow")
    world.incident(NODE)
    world.run(300, step=5)
    assert not world.writes(d.NotifyPod)
    assert not notices(world)


def test_a_refused_notice_keeps_its_time_and_the_message_names_the_component() -> None:
    world = fleet()
    world.refusing[d.NotifyPod] = (403, 'pods "train-0" is forbidden')
    world.fail_until(NODE, "Draining")
    began = world.now
    world.run(60)
    assert "Add component notice" in world.message(NODE)
    assert len(world.writes(d.NotifyPod)) == 2, "not sent again"
    world.run_until(NODE, "Quarantined", limit=300)
    assert min(sent_at(world, d.EvictPod)) - began >= NOTICE_S - 5


def test_a_notice_that_one_pod_refuses_reaches_the_others() -> None:
    world = fleet()
    world.refusing[d.NotifyPod] = (422, "Pod is invalid")
    world.refusing_on = {"train-0"}
    world.fail_until(NODE, "Draining")
    world.run(60)
    assert notices(world).keys() == {"train-1"}
    assert "Pod team-a/train-0 is not notified (422 Pod is invalid)" in world.message(NODE)
    assert len(world.writes(d.NotifyPod)) == 2, "not sent again"
    world.pause()
    world.run(100)
    world.pauses.clear()
    world.run(10)
    assert len(world.writes(d.NotifyPod)) == 4, "the new time is sent to each pod once"
    world.run_until(NODE, "Quarantined", limit=300)


def test_the_drain_timeout_counts_from_the_end_of_the_notice() -> None:
    world = fleet(fatalTimeout="1m")
    world.add_pdb("keep", minAvailable=2)
    world.fail_until(NODE, "Draining")
    world.run(150)
    assert world.condition(NODE, "NeedsHuman") != "DrainTimeout"
    assert "timeout has passed" not in world.message(NODE)
    world.run(60)
    assert "timeout has passed" in world.message(NODE)


def test_without_the_key_nothing_waits() -> None:
    world = fleet(notice="0s")
    world.fail_until(NODE, "Quarantined", limit=60)
    assert not world.writes(d.NotifyPod)
    assert all(later >= earlier for earlier, later in pairwise(sent_at(world, d.EvictPod)))
