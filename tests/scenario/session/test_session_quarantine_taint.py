"""The taint and cordon on real objects: its owner, its leftovers, what happens between
two writes.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from rules.api import writes as d
from rules.api.names import ANNOTATION_SESSION, LABEL_QUARANTINE, TAINT_QUARANTINE
from rules.api.timestamps import format_time
from tests.support.scenario.fleets import fleet
from tests.support.scenario.session_world import World, kill_points

NODE = "n0"


def test_s01_a_cordon_older_than_us_stays() -> None:
    world = fleet(4)
    world.cordon(NODE)
    world.fail_until(NODE, "Quarantined")
    session = world.session(NODE).name
    world.heal_until_released(NODE)
    assert not world.is_quarantined(NODE)
    assert world.unschedulable(NODE)
    assert f"it was cordoned before session {session}" in world.message(NODE)


def cordoned_earlier_by(world: World, manager: str) -> None:
    """A cordon older than the session, with its owner as the API server notes it."""
    entry = {"manager": manager, "operation": "Update", "time": format_time(world.now)}
    fields: dict[str, Any] = {"fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
    world.nodes[NODE]["metadata"]["managedFields"] = [{**entry, **fields}]
    world.cordon(NODE)
    world.run(3)
    world.fail_until(NODE, "Quarantined")


def rebooted_and_uncordoned(world: World) -> None:
    world.reboot(NODE)
    world.run(60, step=5)
    world.nodes[NODE]["metadata"].pop("managedFields", None)
    world.cordon(NODE, on=False)
    world.run(5)
    assert world.unschedulable(NODE), "the cordon of the session is restored"


def released(world: World) -> World:
    world.heal_until_released(NODE, limit=900, step=5)
    return world


def test_a_cordon_that_its_owner_took_back_is_gone_after_the_release() -> None:
    world = fleet(4)
    cordoned_earlier_by(world, "kured")
    rebooted_and_uncordoned(world)
    assert not released(world).unschedulable(NODE)


def test_a_cordon_that_its_owner_did_not_take_back_stays() -> None:
    world = fleet(4)
    cordoned_earlier_by(world, "kured")
    world.reboot(NODE)
    world.run(60, step=5)
    assert released(world).unschedulable(NODE)


def test_a_manual_cordon_outlives_the_uncordon_at_boot() -> None:
    world = fleet(4)
    cordoned_earlier_by(world, "kubectl")
    rebooted_and_uncordoned(world)
    assert released(world).unschedulable(NODE)
    assert "it was cordoned before session" in world.message(NODE)


def test_an_annotation_that_its_owner_removed_does_not_come_back() -> None:
    world = fleet(4)
    world.annotate(NODE, "karpenter.sh/do-not-disrupt", "30m")
    world.fail_until(NODE, "Quarantined")
    world.annotate(NODE, "karpenter.sh/do-not-disrupt", None)
    rebooted_and_uncordoned(world)
    assert world.nodes[NODE]["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
    annotations = released(world).nodes[NODE]["metadata"]["annotations"]
    assert "karpenter.sh/do-not-disrupt" not in annotations


def test_a_cordon_that_another_manager_claimed_during_the_session_stays() -> None:
    world = fleet(4)
    world.fail_until(NODE, "Quarantined")
    world.nodes[NODE]["metadata"]["managedFields"] = [
        {
            "manager": "cluster-keeper",
            "operation": "Update",
            "time": "2027-01-01T00:00:00Z",
            "fieldsV1": {"f:spec": {"f:unschedulable": {}}},
        }
    ]
    world.heal_until_released(NODE)
    assert world.unschedulable(NODE)
    assert "cluster-keeper cordoned it during the quarantine" in world.message(NODE)


def test_a_cordon_claimed_by_server_side_apply_stays_and_its_owner_is_named() -> None:
    world = fleet(4)
    world.fail_until(NODE, "Quarantined")
    world.nodes[NODE]["metadata"]["managedFields"] = [
        {
            "manager": "argocd-controller",
            "operation": "Apply",
            "fieldsV1": {"f:spec": {"f:unschedulable": {}}},
        }
    ]
    world.heal_until_released(NODE)
    assert world.unschedulable(NODE)
    assert not world.is_quarantined(NODE)
    assert "argocd-controller cordoned it during the quarantine" in world.message(NODE)


@pytest.mark.parametrize("when", [d.TaintAndCordon, d.RemoveTaint])
def test_s12_a_taint_added_between_read_and_write_survives(when: type) -> None:
    world = fleet(4)
    world.taint(NODE, "early")
    meddled: list[object] = []

    def meddle(write: d.Write) -> None:
        if isinstance(write, when) and not meddled:
            meddled.append(write)
            world.taint(NODE, "late")

    world.meddler = meddle
    world.fail_until(NODE, "Quarantined")
    world.heal_until_released(NODE)
    world.run(2)
    keys = [taint["key"] for taint in world.nodes[NODE]["spec"]["taints"]]
    assert sorted(keys) == ["early", "late"]
    assert 409 in [status for _, write, _, status in world.sent if isinstance(write, when)]
    assert not world.unschedulable(NODE)


def test_autoscaler_annotations_come_back_as_they_were() -> None:
    world = fleet(4)
    world.annotate(NODE, "karpenter.sh/do-not-disrupt", "30m")
    before = dict(world.nodes[NODE]["metadata"]["annotations"])
    world.fail_until(NODE, "Quarantined")
    quarantined = world.nodes[NODE]["metadata"]["annotations"]
    assert quarantined["karpenter.sh/do-not-disrupt"] == "true"
    assert quarantined["cluster-autoscaler.kubernetes.io/scale-down-disabled"] == "true"
    note = json.loads(quarantined[ANNOTATION_SESSION])
    assert note["session"] == world.session(NODE).name
    assert note["bootID"] == "boot-n0-1"
    assert note["priorUnschedulable"] is False
    world.heal_until_released(NODE)
    assert world.nodes[NODE]["metadata"]["annotations"] == before


@pytest.mark.parametrize(
    ("parts", "cordoned", "tainted"),
    [("CordonAndTaint", True, True), ("Taint", False, True), ("Cordon", True, False)],
)
def test_the_policy_selects_taint_or_cordon(parts: str, cordoned: bool, tainted: bool) -> None:
    policy: dict[str, Any] = {"mark": parts}
    world = fleet(4, **policy)
    world.fail_until(NODE, "Quarantined")
    taints = [t["key"] for t in world.nodes[NODE]["spec"].get("taints", [])]
    assert world.unschedulable(NODE) == cordoned
    assert (TAINT_QUARANTINE in taints) == tainted
    world.heal_until_released(NODE)
    assert not world.is_quarantined(NODE)
    assert not world.unschedulable(NODE)


def test_the_taint_keeps_the_reason_it_opened_with() -> None:
    world = fleet(4)
    first = world.incident(NODE)
    world.run_until(NODE, "Quarantined", limit=30)
    world.incident(NODE, "RowRemapFailure")
    world.close(NODE, first)
    world.run(30)
    taint = next(t for t in world.nodes[NODE]["spec"]["taints"] if t["key"] == TAINT_QUARANTINE)
    assert taint["value"] == "Xid79GPUFallenOffBus"
    assert world.nodes[NODE]["metadata"]["labels"][LABEL_QUARANTINE] == "true"


@pytest.mark.parametrize("release", ["corrected first", "refused"])
def test_a_label_of_an_earlier_version_is_corrected_and_removed(release: str) -> None:
    world = fleet(4)
    world.fail_until(NODE, "Quarantined", limit=30)
    if release == "refused":
        world.refusing[d.RelabelNode] = (403, "no label")
    world.label(NODE, **{LABEL_QUARANTINE: "draining"})
    world.run(90)
    labels = world.nodes[NODE]["metadata"]["labels"]
    assert labels[LABEL_QUARANTINE] == ("draining" if release == "refused" else "true")
    world.heal_until_released(NODE)
    assert LABEL_QUARANTINE not in world.nodes[NODE]["metadata"]["labels"]


def life(world: World) -> None:
    """One fault from its appearance to its repair; called again it goes on where it was."""
    incidents = world.healths[NODE]["status"]["incidents"]
    if not incidents:
        world.incident(NODE)
    if incidents[0]["active"]:
        world.run_until(NODE, "Quarantined", limit=60)
        world.close_all(NODE)
    world.run_until(NODE, "Released", limit=700, step=10)
    world.run(2)


def state(world: World) -> Any:
    node = world.nodes[NODE]
    return (
        node["spec"],
        node["metadata"]["labels"],
        node["metadata"]["annotations"],
        world.phases(NODE)[-1],
        sorted(key for key in world.pods),
    )


def test_a_crash_between_any_two_writes_converges_to_the_same_end() -> None:
    clean = fleet(4)
    clean.add_pod("web-1", NODE)
    died = kill_points(clean, lambda: life(clean))
    assert len(died) > 8
    for write, world in died:
        life(world)
        assert state(world) == state(clean), f"crash before {write}"
        assert len(world.sessions(NODE)) == 1
        assert len(world.writes(d.TaintAndCordon)) == 1


def test_an_orphaned_taint_is_removed() -> None:
    world = fleet(4)
    world.fail_until(NODE, "Quarantined")
    world.close_all(NODE)
    world.quarantines.clear()
    world.run(3)
    assert not world.is_quarantined(NODE)
    assert not world.unschedulable(NODE)


def test_an_unreadable_annotation_is_removed_and_the_cordon_stays() -> None:
    world = fleet(4)
    world.taint(NODE, TAINT_QUARANTINE)
    world.annotate(NODE, ANNOTATION_SESSION, "{garbage")
    world.cordon(NODE)
    world.run(3)
    assert not world.is_quarantined(NODE)
    assert world.unschedulable(NODE)


def busy_until_released(world: World, limit: int = 100) -> None:
    """Another node changes twice a second, so that the watch of nodes is recent."""
    for number in range(2 * limit):
        if world.phase(NODE) == "Released":
            return
        world.label("n3", number=str(number))
        world.run(0.5)
    raise AssertionError(f"{NODE} is {world.phase(NODE)}")


def quarantined_in_a_busy_fleet() -> World:
    world = fleet(4, release={"healthyFor": "30s"})
    world.fail_until(NODE, "Quarantined")
    world.close_all(NODE)
    return world


def reads_at_releases(world: World, first: Callable[[], None] | None = None) -> list[int]:
    """How often the node was read before each removal of its taint; `first` happens just before
    the first one.
    """
    found: list[int] = []

    def count(write: d.Write) -> None:
        if isinstance(write, d.RemoveTaint):
            if first is not None and not found:
                first()
            found.append(sum(path == f"/api/v1/nodes/{NODE}" for path, _ in world.gets))

    world.gets.clear()
    world.before_each = count
    return found


def test_a_node_that_a_recent_watch_shows_is_released_without_a_read() -> None:
    world = quarantined_in_a_busy_fleet()
    reads = reads_at_releases(world)
    busy_until_released(world)
    assert reads == [0]
    assert not world.is_quarantined(NODE)
    assert not world.unschedulable(NODE)


def test_a_recent_watch_shows_who_else_cordoned_the_node() -> None:
    world = quarantined_in_a_busy_fleet()
    entry = {"manager": "cluster-keeper", "operation": "Update", "time": "2027-01-01T00:00:00Z"}
    cordon: dict[str, Any] = {"fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
    world.nodes[NODE]["metadata"]["managedFields"] = [{**entry, **cordon}]
    world.touch(world.nodes[NODE])
    reads = reads_at_releases(world)
    busy_until_released(world)
    assert reads == [0]
    assert world.unschedulable(NODE)
    assert "cluster-keeper cordoned it during the quarantine" in world.message(NODE)


def test_a_change_that_the_watch_has_not_shown_at_the_release_is_not_overwritten() -> None:
    world = quarantined_in_a_busy_fleet()
    reads = reads_at_releases(world, lambda: world.taint(NODE, "example.com/maintenance"))
    busy_until_released(world)
    world.run(5)
    assert [code for _, w, _, code in world.sent if isinstance(w, d.RemoveTaint)] == [409, 200]
    assert reads == [0, 1]
    assert not world.is_quarantined(NODE)
    assert [taint.key for taint in world.node(NODE).spec.taints] == ["example.com/maintenance"]
