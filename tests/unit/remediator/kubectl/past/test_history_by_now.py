"""`history` says what is so when it is printed, also where the records are a minute behind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster.http.threaded import HostedServer
from hack.sim.cluster.resource import NODES
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load
from tests.support.remediator.kubectl_objects import (
    HEALTHS,
    QUARANTINES,
    Object,
    ago,
    node,
    session,
    sick,
    verdict,
)
from tests.support.remediator.record_objects import RECORDS

NAME, GPU, REASON = "gpu-7", "GPU-gpu-7-4", "Xid95UncontainedMemoryError"


def record(**event: Any) -> Object:
    """As it was written: of a fault that goes on."""
    known = {
        "at": ago(15), "lastAt": ago(15), "times": 1, "node": NAME, "reason": REASON,
        "severity": "Fatal", "outcome": "Active", **event,
    }  # fmt: skip
    status = {
        "scope": "GPU", "uuid": GPU, "events": [known], "counters": {"faults": 1},
        "places": [{"node": NAME, "since": ago(900)}],
    }  # fmt: skip
    return {
        "apiVersion": "gpuward.io/v1alpha1", "kind": "GPURecord",
        "metadata": {"name": GPU.lower()}, "status": status,
    }  # fmt: skip


def said(
    tmp_path: Path, *arguments: str, health: Object | None, sessions: tuple[Object, ...] = (),
    records: tuple[Object, ...] = (),
) -> str:  # fmt: skip
    def fill(hosted: HostedServer) -> None:
        load(hosted, NODES, node(NAME))
        load(hosted, QUARANTINES, *sessions)
        load(hosted, RECORDS, *records)
        load(hosted, HEALTHS, *([health] if health else []))

    with cluster(tmp_path, fill) as kubectl:
        return _answer(kubectl, *arguments)


def _answer(kubectl: Kubectl, *arguments: str) -> str:
    code, out, err = kubectl("history", *arguments)
    assert (code, err) == (0, "")
    return out


def going_on(text: str) -> list[str]:
    return re.findall(r"\bfault +goes on +(\S+)", text)


OVER = sick(NAME)
OVER["status"]["incidents"][0] |= {"active": False, "closedAt": ago(1), "firstSeen": ago(3)}
RELEASED = session(f"{NAME}-1", NAME, "Released", "Released.", steps=("Pending", "Marked"))

KEPT = session(
    f"{NAME}-1", NAME, "Quarantined", "So it stands.",
    evidence={"gpus": [GPU], "incidents": [{"id": f"i-{NAME}", "reason": REASON}]},
)  # fmt: skip


@pytest.mark.parametrize(
    ("health", "sessions", "written", "goes_on"),
    [
        pytest.param(sick(NAME), (), (), [REASON], id="it is not on record yet"),
        pytest.param(sick(NAME), (), (record(),), [REASON], id="it is there"),
        pytest.param(OVER, (), (record(),), [], id="it came back, and closed just now"),
        pytest.param(verdict(NAME), (RELEASED,), (record(),), [], id="forgotten and released"),
        pytest.param(
            verdict(NAME),
            (session(f"{NAME}-1", NAME, "Validating", "All closed."),),
            (record(),),
            [],
            id="its session goes on, the fault does not",
        ),
        pytest.param(None, (KEPT,), (record(),), [REASON], id="nobody says otherwise"),
    ],
)
def test_a_fault_goes_on_in_the_history_of_a_node_while_its_verdict_says_so(
    tmp_path: Path, health: Object | None, sessions: tuple[Object, ...],
    written: tuple[Object, ...], goes_on: list[str],
) -> None:  # fmt: skip
    found = said(tmp_path, NAME, health=health, sessions=sessions, records=written)
    assert sorted(set(going_on(found))) == goes_on


def test_a_silent_agent_leaves_open_whether_faults_go_on(tmp_path: Path) -> None:
    found = said(tmp_path, NAME, health=sick(NAME, publisher={"heartbeat": ago(60)}))
    assert "whether the faults go on is not known: the agent's heartbeat stopped" in found


def test_a_session_that_nobody_looked_at_yet_is_in_the_timeline(tmp_path: Path) -> None:
    begun = {**session(f"{NAME}-1", NAME, "", ""), "status": {}}
    found = said(tmp_path, NAME, health=sick(NAME), sessions=(begun,))
    assert re.search(r"session +goes on +opened Pending", found)
