"""While no remediator leads, every command that rests on one says so, and no other does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hack.sim.cluster.http.threaded import HostedServer
from hack.sim.cluster.resource import LEASES
from remediator.kubectl.commands import COMMANDS
from rules.api.timestamps import format_micro_time
from tests.support.remediator.kubectl_cluster import cluster, load
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import BLOCKED, NOW

SAID = "no remediator has led for 20m: nothing is taken out, repaired or given back"
LINES = {
    "fleet": (),
    "list": (),
    "why": (BLOCKED,),
    "plan": (),
    "quarantine": (BLOCKED, "--reason", "x", "--yes"),
    "repair": (BLOCKED, "--step", "RestartNode", "--yes"),
    "release": (BLOCKED, "--reason", "x", "--yes"),
    "unhold": ("gpu-held",),
}


def renewed(seconds_ago: float, holder: str = "r-1") -> Callable[[HostedServer], None]:
    def fill(hosted: HostedServer) -> None:
        load_fleet(hosted)
        at = format_micro_time(NOW - seconds_ago)
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": at}
        metadata = {"name": "gpuward-remediator", "namespace": "gpuward"}
        load(hosted, LEASES, {"metadata": metadata, "spec": spec})

    return fill


def test_issue15_walk_each_command_that_rests_on_a_leader_is_tried() -> None:
    assert {command.name for command in COMMANDS if command.leader} == set(LINES)


def test_issue15_walk_without_a_leader_what_is_asked_for_waits_and_that_is_said(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, renewed(20 * 60)) as kubectl:
        for name, arguments in LINES.items():
            code, out, err = kubectl(name, *arguments)
            assert code == 0, err
            assert SAID in err, name
            assert SAID not in out, "whoever reads the answer by program gets the answer alone"
        assert SAID in kubectl("preflight")[1]
        assert SAID not in kubectl("history", BLOCKED)[2]


def test_issue15_walk_why_promises_nothing_while_nobody_leads(tmp_path: Path) -> None:
    said = "nothing while no remediator leads, and none has for 20m; once one does:"
    with cluster(tmp_path, renewed(20 * 60)) as kubectl:
        assert said in kubectl("why", BLOCKED)[1]
        assert said not in kubectl("why", "gpu-healthy")[1], "nothing is awaited of it"
    with cluster(tmp_path, renewed(2)) as kubectl:
        assert "no remediator leads" not in kubectl("why", BLOCKED)[1]


def test_what_was_asked_for_on_some_of_several_nodes_waits_and_that_is_said(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, renewed(20 * 60)) as kubectl:
        code, out, err = kubectl("unhold", "gpu-never", "gpu-held")
        assert (code, "no longer held" in out, SAID in err) == (1, True, True)
        assert SAID not in kubectl("unhold", "gpu-never")[2], "nothing was asked for"


@pytest.mark.parametrize("seconds_ago", [2, 20])
def test_issue15_walk_a_hand_over_is_no_absence(tmp_path: Path, seconds_ago: float) -> None:
    with cluster(tmp_path, renewed(seconds_ago, holder="")) as kubectl:
        assert kubectl("list")[2] == ""
        assert "ok    leader: a remediator leads" in kubectl("preflight")[1]
