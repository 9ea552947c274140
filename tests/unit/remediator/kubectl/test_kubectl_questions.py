"""A question tells the change from how the node is now, not from how nodes usually are."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.http.threaded import HostedServer
from remediator.kubectl import questions
from remediator.kubectl.node_look import NodeLook
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Mode
from rules.policy.policy import Policy
from tests.support.remediator.kubectl_cluster import cluster, lease, load
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_looks import NAME, SESSION
from tests.support.remediator.kubectl_looks import look as seen_by
from tests.support.remediator.kubectl_objects import (
    BLOCKED,
    HEALTHY,
    NOW,
    QUARANTINES,
    Object,
    ago,
    marked,
    node,
    session,
    sick,
)

PODS = "4 pods"
LEAVE = "4 pods on it, what may go is evicted within its budgets"
CORDONED = node(NAME, spec={"unschedulable": True})
OUT = marked(NAME, SESSION)
BY_ANN = {"source": "Human", "reason": "Requested", "by": "ann"}


def look(on: Object, *opened: Object, mode: Mode = Mode.ENFORCE, **policy: Any) -> NodeLook:
    health = sick(NAME, publisher={"heartbeat": ago(1)})
    return seen_by(health, *opened, on=on, policy=Policy(mode=mode, **policy))


def case(phase: str, **changes: Any) -> Object:
    return session(SESSION, NAME, phase, "So it stands.", **changes)


def asked(seen: NodeLook, level: str = "Drain", waits: str = "") -> str:
    assert seen.node is not None
    return questions.of_quarantine(seen, seen.node, level, PODS, waits)


@pytest.mark.parametrize(
    ("seen", "level", "said"),
    [
        pytest.param(look(node(NAME)), "Drain", f"This takes gpu-7 out of service: {LEAVE}.",
                     id="in service"),
        pytest.param(look(node(NAME)), "Cordon",
                     "This cordons and taints gpu-7: nothing new starts there, "
                     "nothing is evicted.",
                     id="only a mark"),
        pytest.param(look(node(NAME), mark="Taint"), "Cordon",
                     "This taints gpu-7: nothing new starts there, nothing is evicted.",
                     id="the policy's mark"),
        pytest.param(look(CORDONED), "Drain",
                     "gpu-7 is cordoned already, not by gpuward: this taints it, too, and the "
                     f"cordon stays when it is given back; {LEAVE}.", id="cordoned by others"),
        pytest.param(look(CORDONED, mark="Cordon"), "Cordon",
                     "gpu-7 is cordoned already, not by gpuward: this adds no mark of its own, "
                     "and the cordon stays when it is given back; nothing is evicted.",
                     id="nothing to add"),
        pytest.param(look(OUT, case("Released")), "Drain",
                     "gpu-7 carries the mark of a session that has ended: this keeps it out; "
                     f"{LEAVE}.", id="a mark that stayed"),
        pytest.param(look(node(NAME), case("Pending")), "Drain",
                     "gpu-7 already waits to be taken out of service: your reason is added to its "
                     f"session {SESSION}, it waits for no budget of nodes then, and only a person "
                     f"gives it back then; {LEAVE}.", id="its session waits"),
        pytest.param(look(node(NAME), case("Pending", spec={"causes": [BY_ANN]})), "Cordon",
                     "gpu-7 already waits to be taken out of service: your reason is added to its "
                     f"session {SESSION}; {LEAVE}.", id="its session drains whatever is added"),
        pytest.param(look(OUT, case("Quarantined")), "Drain",
                     "gpu-7 is out of service already (Quarantined): your reason is added to its "
                     f"session {SESSION}, and only a person gives it back then.",
                     id="out already"),
        pytest.param(look(OUT, case("Draining", spec={"causes": [BY_ANN]})), "Drain",
                     "gpu-7 is out of service already (Draining): your reason is added to its "
                     f"session {SESSION}.", id="for a person already"),
        pytest.param(look(OUT, case("Validating")), "Drain",
                     "gpu-7 is out of service and about to be given back: your reason is added to "
                     f"its session {SESSION}, it stays, and only a person gives it back then.",
                     id="about to come back"),
        pytest.param(look(OUT, case("Marked", spec={"level": "Cordon"})), "Drain",
                     f"gpu-7 takes no new work already, its pods are on it still: {LEAVE}; your "
                     f"reason is added to its session {SESSION}, and only a person gives it "
                     "back then.",
                     id="cordoned and not drained"),
        pytest.param(look(OUT, case("Marked", spec={"level": "Cordon"})), "Cordon",
                     "gpu-7 is out of service already (Marked): your reason is added to its "
                     f"session {SESSION}, and only a person gives it back then.",
                     id="cordoned, and no more is asked"),
        pytest.param(look(node(NAME), mode=Mode.SHADOW), "Drain",
                     "This touches nothing of gpu-7: the policy is Shadow, and a session of its "
                     "own says why.", id="Shadow"),
    ],
)  # fmt: skip
def test_quarantine_asks_for_what_it_changes(seen: NodeLook, level: str, said: str) -> None:
    assert asked(seen, level) == said


def test_what_is_in_the_way_ends_the_question() -> None:
    said = asked(look(node(NAME)), waits="; it is paused, nothing is done before: x")
    assert said.endswith("; it is paused, nothing is done before: x.")


def released(phase: str, **changes: Any) -> str:
    opened = case(phase, **changes)
    return questions.of_release(look(OUT, opened), msgspec.convert(opened, QuarantineView))


@pytest.mark.parametrize(
    ("said", "part"),
    [
        (released("Draining", drain={"evicted": 3}), "Its drain stops: 3 pods evicted, the"),
        (
            released("Repairing", repair=[{"step": "RestartNode", "adapter": "GKE",
                                           "state": "Asked"}]),
            "RestartNode was asked of GKE: the request is taken back, but a step that has begun",
        ),
        (
            released("Repairing", repair=[{"step": "RestartNode", "adapter": "GKE",
                                           "state": "Planned"}]),
            "RestartNode is to be asked of GKE: it is not asked then.",
        ),
        (
            released("Quarantined", spec={"release": {"by": "ann", "reason": "need it"}}),
            "Its release was asked for by ann already (need it). This gives gpu-7 back now",
        ),
    ],
)  # fmt: skip
def test_release_says_what_stops_in_the_middle(said: str, part: str) -> None:
    assert part in said


def test_a_release_of_what_is_at_rest_stops_nothing() -> None:
    said = released("Quarantined")
    assert not any(word in said for word in ("drain stops", "asked of", "already"))


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        ({"phase": "Quarantined"}, "once nothing uses a GPU there"),
        ({"phase": "Draining"}, "once it is drained and nothing uses a GPU there"),
        ({"phase": "Validating"}, "if a cause of its session comes back (all are closed), once"),
        (
            {"phase": "Repairing", "repair": [{"step": "ResetGPU", "state": "Asked"}]},
            "if ResetGPU, which is under way, fails, once nothing uses a GPU there",
        ),
    ],
)
def test_repair_says_when_the_step_begins(changes: dict[str, Any], begins: str) -> None:
    phase = changes.pop("phase")
    opened = msgspec.convert(case(phase, **changes), QuarantineView)
    assert questions.repair_begins(opened, "RestartNode").startswith(begins)


def with_session(**spec: Any) -> Callable[[HostedServer], None]:
    """A node whose session is cordoned by a policy that no longer drains for its cause."""

    def fill(hosted: HostedServer) -> None:
        load_fleet(hosted)
        opened = session("cordoned", HEALTHY, "Marked", "It is.", spec=spec)
        load(hosted, QUARANTINES, opened)
        only = {"Xid95UncontainedMemoryError": {"level": "Cordon"}}
        policy = {"mode": "Enforce", "reasons": only}
        meta = {"name": "gpuward-policy", "namespace": "gpuward"}
        load(hosted, r.CONFIGMAPS, {"metadata": meta, "data": {"policy.yaml": json.dumps(policy)}})

    return fill


@pytest.mark.parametrize(
    ("level", "wanted", "said"),
    [
        ("Cordon", "Cordon", "which is open already"),
        ("Drain", "Drain", "its pods are evicted, too"),
    ],
)
def test_a_word_of_no_more_than_cordon_begins_no_drain(
    tmp_path: Path, level: str, wanted: str, said: str
) -> None:
    """Its session could drain, and only the policy holds it back: a person's cause would not."""
    with cluster(tmp_path, with_session()) as kubectl:
        code, out, err = kubectl("quarantine", HEALTHY, "--level", level, "--reason", "x", "--yes")
        assert (code, err) == (0, "")
        assert said in out
        assert kubectl.get(QUARANTINES, "cordoned")["spec"]["level"] == wanted


def test_what_is_given_back_takes_no_reason_and_no_repair(tmp_path: Path) -> None:
    """Both would end with the session, and nobody would hear of it."""
    asked = {"release": {"by": "ann", "reason": "need it"}}
    with cluster(tmp_path, with_session(**asked)) as kubectl:
        for words in (("quarantine", HEALTHY, "--reason", "x"),
                      ("repair", HEALTHY, "--step", "RestartNode")):  # fmt: skip
            code, out, err = kubectl(*words, "--yes")
            assert (code, out) == (1, "")
            assert "is being given back, as ann asked" in err
        spec = kubectl.get(QUARANTINES, "cordoned")["spec"]
        assert len(spec["causes"]) == 1
        assert "repair" not in spec


def test_a_hold_promises_nothing_to_a_node_that_is_given_back(tmp_path: Path) -> None:
    """A release goes over every hold: whoever is told otherwise looks away."""
    asked = {"release": {"by": "ann", "reason": "need it"}}
    with cluster(tmp_path, with_session(**asked)) as kubectl:
        code, out, _ = kubectl("hold", HEALTHY, "--reason", "x")
        shadow = kubectl("hold", "gpu-shadow", "--reason", "x")[1]
    assert code == 0
    assert "its release goes over that, as ann asked, and the hold stays on the node" in out
    assert "a release does not happen" not in out
    assert "a drain goes on" not in shadow


def test_a_session_that_ends_with_shadow_takes_no_reason(tmp_path: Path) -> None:
    """It would end with the session that the mode ends, and nobody would hear of it."""

    def fill(hosted: HostedServer) -> None:
        load_fleet(hosted)
        policy = {"name": "gpuward-policy", "namespace": "gpuward"}
        load(hosted, r.CONFIGMAPS, {"metadata": policy, "data": {"policy.yaml": "mode: Enforce"}})

    with cluster(tmp_path, fill) as kubectl:
        code, out, err = kubectl("quarantine", "gpu-shadow", "--reason", "x", "--yes")
    assert (code, out) == (1, "")
    assert "ends, since the policy enforces now" in err


def test_without_a_policy_nobody_is_promised_that_something_is_done(tmp_path: Path) -> None:
    def fill(hosted: HostedServer) -> None:
        load_fleet(hosted)
        load(hosted, r.NAMESPACES, {"metadata": {"name": "elsewhere"}})
        load(hosted, r.LEASES, lease(NOW, namespace="elsewhere"))

    with cluster(tmp_path, fill) as kubectl:
        for words in (("quarantine", HEALTHY, "--reason", "x"),
                      ("repair", BLOCKED, "--step", "RestartNode")):  # fmt: skip
            _, _, question = kubectl(*words, "-n", "elsewhere")
            _, answer, _ = kubectl(*words, "-n", "elsewhere", "--yes")
            for said in (question, answer):
                assert "there is no policy in namespace elsewhere (-n says where" in said


def test_a_node_that_is_gone_has_nothing_that_comes_off() -> None:
    gone = dataclasses.replace(look(node(NAME), case("Draining")), node=None)
    assert gone.session is not None
    said = questions.of_release(gone, gone.session)
    assert "There is no node gpu-7 any more: this only ends its session." in said
    hidden = dataclasses.replace(gone, node_hidden=True)
    assert "taint and cordon come off" in questions.of_release(hidden, gone.session)


def test_an_empty_node_has_no_pods_to_evict() -> None:
    seen = look(node(NAME))
    assert seen.node is not None
    said = questions.of_quarantine(seen, seen.node, "Drain", "", "")
    assert said == "This takes gpu-7 out of service: no pods are on it."


def test_nothing_is_let_go_in_shadow(tmp_path: Path) -> None:
    with cluster(tmp_path, load_fleet) as kubectl:
        code, _, err = kubectl("repair", "gpu-shadow", "--step", "RestartNode", "--yes")
        assert (code, "is Shadow: nothing is repaired there" in err) == (1, True)


def test_the_question_of_a_node_that_is_out_already_says_so(tmp_path: Path) -> None:
    with cluster(tmp_path, load_fleet) as kubectl:
        _, _, err = kubectl("quarantine", BLOCKED, "--reason", "x")
        assert f"{BLOCKED} is out of service already (Draining): your reason is added" in err
        assert "This takes" not in err
        _, _, err = kubectl("repair", BLOCKED, "--step", "RestartNode")
        assert "once it is drained and nothing uses a GPU there" in err
