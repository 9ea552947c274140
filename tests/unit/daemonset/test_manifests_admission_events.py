"""The admission policy on Events as a table: what an agent may tell, and about what."""

from __future__ import annotations

from typing import Any

import pytest

from agent.publish.lanes import event_body
from agent.publish.objects import Metadata, NodeObject
from rules.api import names
from rules.judge.messages import NodeEvent

pytest.importorskip("celpy", reason="cel-python is not installed")

from tests.support.cluster.admission_cel import Write, refusals
from tests.support.cluster.admission_nodes import AGENT, BOUND, NODE_CLAIM, edited


def an_event(**changes: Any) -> dict[str, Any]:
    """What the agent sends, as the server hands it to admission."""
    kept = NodeObject(metadata=Metadata(name="gpu-1", uid="u-1"))
    event = NodeEvent("Warning", "Xid79GPUFallenOffBus", "GPU 3 fell off the bus")
    return edited(event_body(kept, event, 1.0), changes)


HEALTH_OBJECT = {"kind": "GPUNodeHealth", "apiVersion": names.API_VERSION, "name": "gpu-1"}


def event_write(new: dict[str, Any], **more: Any) -> Write:
    given = {"user": AGENT, "resource": "events", "operation": "CREATE", "extra": BOUND, **more}
    return Write(new=new, **given)


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(event_write(an_event()), id="as it is sent"),
        pytest.param(event_write(an_event(), user=AGENT.replace("gpuward:", "x:")),
                     id="in another namespace"),
        pytest.param(event_write(an_event(involvedObject=HEALTH_OBJECT)), id="its verdict"),
        pytest.param(event_write(an_event(involvedObject__apiVersion=None)), id="no version"),
        pytest.param(event_write(an_event(), user="system:node:gpu-9", extra=None),
                     id="somebody else"),
    ],
)  # fmt: skip
def test_the_agent_may_tell_about_its_node(write: Write) -> None:
    assert refusals(write) == []


OWN_EVENTS, KINDS, PLACE, NAME = (
    "only about the node that its token", "only about a Node or", "in namespace default",
    "own name"
)  # fmt: skip


@pytest.mark.parametrize(
    ("write", "why"),
    [
        pytest.param(event_write(an_event(involvedObject__name="gpu-2")), [OWN_EVENTS],
                     id="another node"),
        pytest.param(event_write(an_event(involvedObject={**HEALTH_OBJECT, "name": "gpu-2"})),
                     [OWN_EVENTS], id="the verdict of another"),
        pytest.param(event_write(an_event(), extra={}), [OWN_EVENTS], id="unbound token"),
        pytest.param(event_write(an_event(), extra=None), [OWN_EVENTS], id="no claims at all"),
        pytest.param(event_write(an_event(), extra={NODE_CLAIM: []}), [OWN_EVENTS],
                     id="empty claim"),
        pytest.param(event_write(an_event(), extra={NODE_CLAIM: ["gpu-1", "gpu-2"]}), [OWN_EVENTS],
                     id="two claims"),
        pytest.param(event_write(an_event(involvedObject__name=None)), [OWN_EVENTS],
                     id="about no name"),
        pytest.param(
            event_write(an_event(involvedObject__name=None), extra={NODE_CLAIM: [""]}),
            [OWN_EVENTS], id="no name, and a claim of none",
        ),
        pytest.param(event_write(an_event(involvedObject=None)), [OWN_EVENTS, KINDS],
                     id="about nothing"),
        pytest.param(event_write(an_event(involvedObject__kind="Pod")), [KINDS], id="a Pod"),
        pytest.param(event_write(an_event(involvedObject__apiVersion="evil.example/v1")), [KINDS],
                     id="another group's Node"),
        pytest.param(
            event_write(an_event(involvedObject={**HEALTH_OBJECT, "apiVersion": "v1"})), [KINDS],
            id="another group's GPUNodeHealth",
        ),
        pytest.param(event_write(an_event(related={"kind": "Pod", "name": "x"})), [KINDS],
                     id="a second object"),
        pytest.param(event_write(an_event(metadata__namespace="team-a")), [PLACE],
                     id="another namespace"),
        pytest.param(event_write(an_event(metadata__namespace=None)), [PLACE], id="no namespace"),
        pytest.param(event_write(an_event(source__component="kubelet")), [NAME], id="as kubelet"),
        pytest.param(event_write(an_event(source=None)), [NAME], id="as nobody"),
        pytest.param(event_write(an_event(reportingComponent="kubelet")), [NAME],
                     id="reported by kubelet"),
        pytest.param(event_write(an_event(involvedObject__name="gpu-2"), operation="UPDATE",
                                 old=an_event()), [OWN_EVENTS], id="changed afterwards"),
    ],
)  # fmt: skip
def test_the_agent_may_tell_about_nothing_else(write: Write, why: list[str]) -> None:
    said = refusals(write)
    assert len(said) == len(why)
    for message, expected in zip(said, why, strict=True):
        assert expected in message
        assert message.startswith("gpuward-agent may write Events only")
