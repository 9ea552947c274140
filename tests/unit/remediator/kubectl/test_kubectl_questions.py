"""What a command that writes asks and claims holds as things are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.server import HostedServer
from remediator.kube.answer import Answer
from remediator.kubectl.cluster import checked
from remediator.kubectl.command import CommandError
from remediator.kubectl.node_state import NodeLook
from remediator.kubectl.why import why_lines as why
from rules.api.names import ANNOTATION_REPAIRED
from rules.api.nodes import PauseView
from rules.policy.policy import Policy
from tests.support.remediator.kubectl_cluster import cluster, lease, load
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_looks import NAME
from tests.support.remediator.kubectl_looks import look as seen_by
from tests.support.remediator.kubectl_objects import (
    BLOCKED,
    HEALTHY,
    NOW,
    QUARANTINES,
    Object,
    ago,
    node,
    policy_map,
    quarantined,
    session,
    sick,
)


def with_session(**spec: Any) -> Callable[[HostedServer], None]:
    """A node whose session is cordoned by a policy that no longer drains for its cause."""

    def fill(hosted: HostedServer) -> None:
        load_fleet(hosted)
        opened = session("cordoned", HEALTHY, "Marked", "It is.", spec=spec)
        load(hosted, QUARANTINES, opened)
        only = {"Xid95UncontainedMemoryError": {"level": "Cordon"}}
        policy = {"mode": "Enforce", "reasons": only}
        load(hosted, r.CONFIGMAPS, policy_map(json.dumps(policy)))

    return fill


@pytest.mark.parametrize(
    ("level", "wanted", "message"),
    [
        ("Cordon", "Cordon", "added to open session"),
        ("Drain", "Drain", "its pods will be evicted, too"),
    ],
)
def test_a_request_with_level_cordon_starts_no_drain(
    tmp_path: Path, level: str, wanted: str, message: str
) -> None:
    """Its session could drain, and only the policy holds it back: an operator's cause would
    not.
    """
    with cluster(tmp_path, with_session()) as kubectl:
        code, out, err = kubectl("quarantine", HEALTHY, "--level", level, "--reason", "x", "--yes")
        assert (code, err) == (0, "")
        assert message in out
        assert kubectl.get(QUARANTINES, "cordoned")["spec"]["level"] == wanted


def test_the_pods_of_the_node_itself_do_not_count_as_evicted(tmp_path: Path) -> None:
    """As in `kubectl drain`, pods of DaemonSets and static pods stay."""

    def pod(name: str, kind: str, phase: str = "Running") -> Object:
        owner = {"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o"}
        controller = {**owner, "controller": True}
        metadata = {"name": name, "namespace": "work", "ownerReferences": [controller]}
        return {"metadata": metadata, "spec": {"nodeName": HEALTHY}, "status": {"phase": phase}}

    def fill(hosted: HostedServer) -> None:
        load_fleet(hosted)
        load(hosted, r.NAMESPACES, {"metadata": {"name": "work"}})
        static = {"kubernetes.io/config.mirror": "x"}
        mirror = {"metadata": {"name": "m", "namespace": "work", "annotations": static},
                  "spec": {"nodeName": HEALTHY}}  # fmt: skip
        load(hosted, r.PODS, pod("a", "ReplicaSet"), pod("b", "DaemonSet"), mirror,
             pod("done", "Job", "Succeeded"))  # fmt: skip

    with cluster(tmp_path, fill) as kubectl:
        code, out, err = kubectl("quarantine", HEALTHY, "--reason", "x")
    assert (code, out) == (1, "")
    assert f"This takes {HEALTHY} out of service: gpuward evicts 1 pod within the budgets" in err


def test_a_session_under_release_takes_no_reason_and_no_repair(tmp_path: Path) -> None:
    """Both would end with the session, and nobody would hear of it."""
    asked = {"release": {"by": "ann", "reason": "need it"}}
    with cluster(tmp_path, with_session(**asked)) as kubectl:
        for arguments in (("quarantine", HEALTHY, "--reason", "x"),
                      ("approve", HEALTHY, "--step", "RestartNode")):  # fmt: skip
            code, out, err = kubectl(*arguments, "--yes")
            assert (code, out) == (1, "")
            assert "is being released, as ann requested" in err
        spec = kubectl.get(QUARANTINES, "cordoned")["spec"]
        assert len(spec["causes"]) == 1
        assert "repair" not in spec


def test_a_hold_does_not_stop_a_requested_release(tmp_path: Path) -> None:
    """A release overrides every hold, so the answer must not promise otherwise."""
    asked = {"release": {"by": "ann", "reason": "need it"}}
    with cluster(tmp_path, with_session(**asked)) as kubectl:
        code, out, _ = kubectl("hold", HEALTHY, "--reason", "x")
    assert code == 0
    assert "ann requested its release, which ignores the hold, and the hold stays" in out
    assert "the node is not released" not in out


def world(policy: str = "mode: Enforce") -> Callable[[HostedServer], None]:
    """`gpu-out` is being drained, `gpu-cordoned` rests at level Cordon."""

    def fill(hosted: HostedServer) -> None:
        load(hosted, r.NAMESPACES, {"metadata": {"name": "gpuward"}})
        load(hosted, r.LEASES, lease(NOW))
        names = ("gpu-out", "gpu-cordoned")
        load(
            hosted, r.NODES, *(quarantined(name, f"{name}-s") for name in names), node("gpu-well")
        )
        draining = session("gpu-out-s", "gpu-out", "Draining", "x")
        cordoned = session("gpu-cordoned-s", "gpu-cordoned", "Marked", "x")
        cordoned["spec"]["level"] = "Cordon"
        load(hosted, QUARANTINES, draining, cordoned)
        load(hosted, r.CONFIGMAPS, policy_map(policy))

    return fill


@pytest.mark.parametrize("policy", ["mode: Shadow", "{}"], ids=["Shadow", "the default"])
def test_a_pause_in_shadow_reports_that_it_has_no_effect(tmp_path: Path, policy: str) -> None:
    with cluster(tmp_path, world(policy)) as kubectl:
        code, message, err = kubectl("pause", "--reason", "x", "--yes")
    assert (code, err) == (0, "")
    assert "the policy is Shadow: the pause has an effect only in mode Enforce" in message


def test_quarantine_in_shadow_promises_no_eviction_and_no_budget(tmp_path: Path) -> None:
    with cluster(tmp_path, world("mode: Shadow")) as kubectl:
        _, well, _ = kubectl("quarantine", "gpu-well", "--reason", "x", "--yes")
        _, _, asked = kubectl("quarantine", "gpu-cordoned", "--reason", "x")
        _, added, _ = kubectl("quarantine", "gpu-cordoned", "--reason", "x", "--yes")
    assert "the policy is Shadow, so the node is unchanged" in well
    assert "exceeds the budget" not in well
    assert "nothing is evicted" in asked
    assert "gpuward evicts" not in asked
    assert "its pods will be evicted, too; the policy is Shadow" in added


REPAIRS = "{mode: Enforce, repair: {mode: Auto, steps: {RestartNode: {adapter: NodeConditions}}}}"


def test_a_repair_of_a_held_node_waits_for_the_hold(tmp_path: Path) -> None:
    with cluster(tmp_path, world(REPAIRS)) as kubectl:
        kubectl("hold", "gpu-out", "--reason", "x")
        _, message, _ = kubectl("approve", "gpu-out", "--step", "RestartNode", "--yes")
    assert "; the node is held, and repair waits until: kubectl gpuward unhold gpu-out" in message


def look(*sessions: Object, on: Object | None = None, health: Object, pauses=()) -> NodeLook:
    covering = tuple(msgspec.convert(one, PauseView) for one in pauses)
    return seen_by(health, *sessions, on=on, pauses=covering, policy=Policy())


def test_who_asks_for_a_node_hears_that_the_budget_is_exceeded(tmp_path):
    with cluster(tmp_path, load_fleet) as kubectl:
        code, out, err = kubectl("quarantine", HEALTHY, "--reason", "fan")
        assert (code, out) == (1, "")
        over = "It exceeds the budget (5 of 13 nodes are unavailable, the budget allows 1)"
        assert over in err
        code, out, err = kubectl("quarantine", HEALTHY, "--reason", "fan", "--yes")
        assert (code, err) == (0, "")
        assert over in out
        code, out, _ = kubectl("quarantine", BLOCKED, "--reason", "fan", "--yes")
        assert (code, "budget" in out) == (0, False)  # it is away already and costs nothing more
        plan = " ".join(kubectl("plan", HEALTHY)[1].split())
        assert "budget: 4 of 13 nodes are unavailable, the budget allows 1: exceeded by 3" in plan


@pytest.mark.parametrize(
    ("message", "disagrees"),
    [
        pytest.param(ago(5), True, id="the fault was there before and is there still"),
        pytest.param(ago(0), False, id="a moment ago: nobody has checked yet"),
        pytest.param(ago(20), False, id="what began after the repair is another fault"),
    ],
)
def test_why_reports_that_the_agent_disagrees(message, disagrees):
    on = node(NAME, annotations={ANNOTATION_REPAIRED: f"{message} GPU 4 replaced (ann)"})
    text = " ".join(" ".join(why(look(on=on, health=sick(NAME)))).split())
    sentence = "the agent disagrees with the repair: it still sees Xid95UncontainedMemoryError"
    assert (sentence in text) is disagrees


@pytest.mark.parametrize(
    ("code", "message", "remedy"),
    [
        (403, 'admission webhook "corp" denied the request: change freeze', "ask who runs this"),
        (403, 'users "ann" is forbidden: User "op" cannot impersonate resource "users" in API',
         "ask for the right to impersonate"),
        (403, 'gpuquarantines.gpuward.io is forbidden: User "op" cannot impersonate-on:user',
         "ask for the right to impersonate"),
        (0, "[SSL: CERTIFICATE_VERIFY_FAILED] failed", "check certificate-authority"),
    ],
    ids=["admission", "impersonation until 1.35", "from 1.36", "certificate"],
)  # fmt: skip
def test_a_refusal_that_no_gpuward_role_solves_has_its_own_remedy(
    code: int, message: str, remedy: str
) -> None:
    body = {"kind": "Status", "code": code, "reason": "Forbidden", "message": message,
            "details": {"kind": "nodes"}}  # fmt: skip
    sent = json.dumps(body).encode()
    answer = Answer(code=code, body=sent) if code else Answer(code=0, failure=message)
    with pytest.raises(CommandError, match=remedy) as caught:
        checked(answer)
    assert not caught.value.forbidden
