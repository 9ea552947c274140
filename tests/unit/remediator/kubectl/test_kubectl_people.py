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
from rules.api.nodes import FreshNode, PauseView
from rules.policy.policy import Policy
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_looks import NAME
from tests.support.remediator.kubectl_looks import look as seen_by
from tests.support.remediator.kubectl_objects import (
    BLOCKED,
    HEALTHS,
    HEALTHY,
    NOW,
    PAUSES,
    QUARANTINES,
    Object,
    ago,
    condition,
    marked,
    node,
    session,
    sick,
    verdict,
)

EVERYWHERE: Object = {
    "apiVersion": "gpuward.io/v1alpha1",
    "kind": "GPUWardPause",
    "metadata": {"name": "pause-all"},
    "spec": {"scope": {"all": True}, "by": "ann", "reason": "switch upgrade"},
}
ENDS = "take it back with: kubectl gpuward unhold"
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


def rows_of(answer: str) -> dict[str, str]:
    """The rows of the table below what is said of the whole fleet, by node."""
    _, _, table = answer.partition("\nNODE ")
    return {line.split()[0]: line for line in table.splitlines()[1:]}


def test_a_pause_alone_puts_no_healthy_node_into_the_table(paused):
    assert HEALTHY not in rows_of(paused("fleet")[1])
    assert HEALTHY in paused("fleet", "-o", "wide")[1]


def test_a_hold_is_seen_in_every_command(paused):
    assert "gpu-kept: in service, held, paused" in paused("why", "gpu-kept")[1]
    rows = rows_of(paused("fleet")[1])
    assert "held, paused" in rows["gpu-kept"]
    assert "held, paused" in rows["gpu-held"]
    assert "held, paused" in next(
        line for line in paused("plan")[1].splitlines() if line.startswith("gpu-held")
    )
    (found,) = json.loads(paused("why", "gpu-kept", "-o", "json")[1])["items"]
    assert found["people"] == ["held", "paused"]


def look(*sessions: Object, on: Object | None = None, health: Object, pauses=()) -> NodeLook:
    covering = tuple(msgspec.convert(one, PauseView) for one in pauses)
    return seen_by(health, *sessions, on=on, pauses=covering, policy=Policy())


@pytest.mark.parametrize("mode", ["Shadow", ""])
def test_nothing_is_next_in_shadow(mode):
    """Also of a session that the remediator has not looked at yet: the policy says it then."""
    one = session("s", NAME, "Pending" if mode else "", "m", mode=mode)
    text = "\n".join(why(look(one, health=sick(NAME))))
    assert "nothing is touched" in text.splitlines()[0]
    assert "taint and cordon, " not in text
    assert "next     nothing, in Shadow" in text


def test_a_hold_outlasts_a_release_and_both_say_so(tmp_path: Path) -> None:
    with cluster(tmp_path, load_fleet) as kubectl:
        assert kubectl("hold", BLOCKED, "--reason", "vendor")[0] == 0
        _, said, _ = kubectl("release", BLOCKED, "--reason", "tested", "--yes")
    assert f"the hold stays on the node for the next time; {ENDS} {BLOCKED}" in said
    kept = msgspec.convert(node(NAME, annotations={ANNOTATION_HOLD: "vendor"}), FreshNode)
    text = "\n".join(why(NodeLook(name=NAME, now=NOW, node=kept)))
    assert "in service, held" in text
    assert "let it be released" not in text


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
    ("name", "before"),
    [
        pytest.param("gpu-paused", "kubectl gpuward resume pause-0badcafe", id="paused"),
        pytest.param("gpu-opted-out", "kubectl label node gpu-opted-out", id="opted out"),
    ],
)
def test_whoever_asks_hears_what_it_waits_for_also_where_a_session_is_open(
    tmp_path: Path, name: str, before: str
) -> None:
    with cluster(tmp_path, load_fleet) as kubectl:
        for _ in range(2):
            code, out, _ = kubectl("quarantine", name, "--reason", "x", "--yes")
            assert code == 0
            assert f"nothing is done before: {before}" in out.replace("done to it", "done")
    assert "which is open already" in out


def test_with_room_nobody_is_warned(tmp_path: Path):
    def roomy(hosted: HostedServer) -> None:
        load(hosted, r.NODES, *(node(f"n-{index}") for index in range(3)))

    with cluster(tmp_path, roomy) as kubectl:
        assert "budget" not in kubectl("quarantine", "n-0", "--reason", "fan", "--yes")[1]
        assert "exceeded" not in kubectl("plan")[1]


def test_a_repair_that_the_agent_does_not_see_is_answered_with_the_fault(tmp_path):
    with cluster(tmp_path, load_fleet) as kubectl:
        code, out, _ = kubectl("repaired", "gpu-budget", "--reason", "GPU 4 replaced")
        assert code == 0
        assert "the agent last saw Xid95UncontainedMemoryError (Fatal)" in out
        assert "it sees no fault now" in kubectl("repaired", HEALTHY, "--reason", "x")[1]


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


REFUSED = condition("Blocked", "MarkRefused", "Refused: a webhook says no.")


def test_a_mark_that_could_not_come_off_is_no_strangers_cordon(tmp_path: Path) -> None:
    """The session has ended; taint and cordon are on, and nobody else set them."""

    def stuck(hosted: HostedServer) -> None:
        load(hosted, r.NODES, marked("b", "b-1", "healthy"), node("c"))
        load(hosted, QUARANTINES, session("b-1", "b", "Released", "m", conditions=[REFUSED]))
        load(hosted, HEALTHS, verdict("b"), verdict("c"))

    with cluster(tmp_path, stuck) as kubectl:
        for command in ("fleet",):
            row = next(line for line in kubectl(command)[1].splitlines() if line.startswith("b "))
            assert "Released" in row
            assert "MarkRefused" in row
        code, _, err = kubectl("release", "b", "--reason", "x", "--yes")
    assert code == 1
    assert "its mark comes off as soon as the API server lets it" in err
    assert "somebody else" not in err


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
