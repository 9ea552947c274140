"""What people decided is said by every command: pauses, holds, a budget that is exceeded, a
repair.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.http.threaded import HostedServer
from remediator.kube.answer import Answer
from remediator.kubectl.cluster import checked
from remediator.kubectl.command import CommandError
from remediator.kubectl.node_look import NodeLook
from remediator.kubectl.why import why_lines as why
from rules.api.names import ANNOTATION_HOLD, ANNOTATION_REPAIRED
from rules.api.nodes import PauseView
from rules.policy.policy import Policy
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_looks import NAME
from tests.support.remediator.kubectl_looks import look as seen_by
from tests.support.remediator.kubectl_objects import (
    BLOCKED,
    HEALTHY,
    PAUSES,
    Object,
    ago,
    node,
    sick,
)

EVERYWHERE: Object = {
    "apiVersion": "gpuward.io/v1alpha1",
    "kind": "GPUWardPause",
    "metadata": {"name": "pause-all"},
    "spec": {"scope": {"all": True}, "by": "ann", "reason": "switch upgrade"},
}
SAID = "paused for 20m by ann (pause-all), all nodes: switch upgrade"


def fill(hosted: HostedServer) -> None:
    load_fleet(hosted)
    load(hosted, PAUSES, EVERYWHERE)
    load(hosted, r.NODES, node("gpu-kept", annotations={ANNOTATION_HOLD: "vendor"}))


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with cluster(tmp_path_factory.mktemp("paused"), fill) as kubectl:
        yield kubectl


@pytest.mark.parametrize("command", [("fleet",), ("plan",), ("why", HEALTHY)])
def test_every_command_that_looks_names_the_pauses(paused, command):
    code, out, _ = paused(*command)
    assert code == 0
    assert SAID in " ".join(out.split())


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


def test_a_word_that_is_only_played_in_shadow_exceeds_no_budget(tmp_path: Path) -> None:
    def fill(hosted: HostedServer) -> None:
        load_fleet(hosted)
        meta = {"name": "gpuward-policy", "namespace": "gpuward"}
        load(hosted, r.CONFIGMAPS, {"metadata": meta, "data": {"policy.yaml": "mode: Shadow"}})

    with cluster(tmp_path, fill) as kubectl:
        code, out, err = kubectl("quarantine", HEALTHY, "--reason", "fan", "--yes")
    assert (code, err) == (0, "")
    assert "the policy is Shadow, so nothing is touched" in out
    assert "budget" not in out


@pytest.mark.parametrize(
    ("said", "disagrees"),
    [
        pytest.param(ago(5), True, id="the fault was there before and is there still"),
        pytest.param(ago(0), False, id="a moment ago: nobody has looked yet"),
        pytest.param(ago(20), False, id="what began after the repair is another fault"),
    ],
)
def test_why_says_that_the_agent_disagrees(said, disagrees):
    on = node(NAME, annotations={ANNOTATION_REPAIRED: f"{said} GPU 4 replaced (ann)"})
    text = " ".join(" ".join(why(look(on=on, health=sick(NAME)))).split())
    sentence = "the agent disagrees with the repair: it still sees Xid95UncontainedMemoryError"
    assert (sentence in text) is disagrees


def test_a_refusal_of_admission_asks_for_no_role() -> None:
    body = {"kind": "Status", "code": 403, "reason": "Forbidden", "details": {"kind": "nodes"},
            "message": 'admission webhook "corp" denied the request: change freeze'}  # fmt: skip
    answer = Answer(code=403, body=json.dumps(body).encode())
    with pytest.raises(CommandError, match="ask who runs this admission policy or webhook"):
        checked(answer)


@pytest.mark.parametrize(
    "message",
    [
        'users "ann" is forbidden: User "op" cannot impersonate resource "users" in API group ""',
        'gpuquarantines.gpuward.io is forbidden: User "op" cannot impersonate-on:user-info:list',
    ],
    ids=["until 1.35", "from 1.36"],
)
def test_who_may_not_act_as_somebody_else_is_sent_to_no_role_of_ours(message: str) -> None:
    body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message,
            "details": {"kind": "gpuquarantines"}}  # fmt: skip
    answer = Answer(code=403, body=json.dumps(body).encode())
    with pytest.raises(CommandError, match="ask for the right to impersonate") as caught:
        checked(answer)
    assert not caught.value.forbidden


def test_a_certificate_that_nobody_vouches_for_is_no_matter_of_the_network() -> None:
    answer = Answer(code=0, failure="[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    with pytest.raises(CommandError, match="check certificate-authority"):
        checked(answer)
