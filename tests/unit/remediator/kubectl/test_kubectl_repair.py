"""`kubectl gpuward approve`: the proposed step is approved by name, and nothing is requested in
vain.
"""

import json
import re
from collections.abc import Callable

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.server import HostedServer
from rules.api.timestamps import parse_time
from tests.support.remediator.kubectl_cluster import cluster, load
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import (
    HEALTHS,
    HEALTHY,
    QUARANTINES,
    Object,
    condition,
    gpu_health,
    policy_map,
    session,
)

BY_OPERATOR = {"source": "Human", "reason": "Requested", "severity": "Degraded", "by": "ann"}


def proposed(
    mode: str, *, tried: bool = False, more: tuple[Object, ...] = ()
) -> Callable[[HostedServer], None]:
    """A drained node whose repair is proposed, under a policy that repairs so."""

    def fill(hosted: HostedServer) -> None:
        load_fleet(hosted)
        conditions = [
            condition(kind, reason, "It is.")
            for kind, reason in (
                ("Blocked", "Approval"), ("NeedsHuman", "Approval"),
                ("RepairProposed", "RestartNode"),
            )
        ]  # fmt: skip
        repair = [{"step": "RestartNode", "state": "Failed"}] if tried else []
        made = session(
            "drained", HEALTHY, "Quarantined", "m", conditions=conditions, repair=repair
        )
        made["spec"]["causes"] = [
            {"source": "Detector", "incident": "i1", "reason": "GPULost"}, *more
        ]  # fmt: skip
        load(hosted, QUARANTINES, made)
        policy = {
            "mode": "Enforce",
            "repair": {"mode": mode, "steps": {"RestartNode": {"adapter": "NodeConditions"}}},
        }
        load(hosted, r.CONFIGMAPS, policy_map(json.dumps(policy)))

    return fill


def test_the_proposed_step_is_approved_by_name(tmp_path):
    with cluster(tmp_path, proposed("Ask")) as kubectl:
        code, _, err = kubectl("approve", "gpu-healthy")
        assert code != 0
        assert "RestartNode starts when no process uses a GPU of the node" in err
        code, out, err = kubectl("approve", "gpu-healthy", "--yes")
        spec = kubectl.get(QUARANTINES, "drained")["spec"]
        assert (code, err) == (0, "")
        assert ", starts when no process uses a GPU of the node" in out
        assert spec["repair"]["step"] == "RestartNode"
        assert spec["repair"]["by"]
        assert parse_time(spec["repair"]["at"]) is not None
        code, _, err = kubectl("approve", "gpu-healthy", "--step", "PowerCycle")
        assert code == 1
        assert "no adapter for PowerCycle, only for RestartNode" in err


def test_the_reason_for_a_repair_is_stored_and_shown(tmp_path):
    """Bounded, escaped where it is shown, and that of one request only."""
    hostile = "vendor on site \x1b[2J; kubectl delete node x " + "w" * 2000
    with cluster(tmp_path, proposed("Ask")) as kubectl:
        code, out, err = kubectl("approve", "gpu-healthy", "--yes", "--reason", hostile)
        assert (code, err) == (0, "")
        assert "not kept" not in out
        kept = kubectl.get(QUARANTINES, "drained")["spec"]["repair"]["reason"]
        assert kept == " ".join(hostile.split())[:1024]
        _, out, _ = kubectl("why", "gpu-healthy", "-o", "wide")
        assert "\x1b" not in out
        approved = r"UTC \w+ approved by kubernetes-admin: vendor on site \\x1b\[2J;"
        assert re.search(approved, out)
        kubectl("approve", "gpu-healthy", "--yes")
        assert "reason" not in kubectl.get(QUARANTINES, "drained")["spec"]["repair"]
        assert kubectl("approve", "gpu-healthy", "--yes", "--reason", " ")[0] == 64


@pytest.mark.parametrize(
    ("mode", "tried", "why"),
    [("Off", False, "switches repair off"), ("Ask", True, "a session tries each step once; name")],
)
def test_what_would_do_nothing_is_not_asked_for(tmp_path, mode, tried, why):
    with cluster(tmp_path, proposed(mode, tried=tried)) as kubectl:
        code, _, err = kubectl("approve", "gpu-healthy")
        assert code == 1
        assert why in err
        assert "repair" not in kubectl.get(QUARANTINES, "drained")["spec"]


@pytest.mark.parametrize("over", [False, True])
def test_nothing_is_repaired_once_the_faults_are_over_and_people_keep_the_node_out(tmp_path, over):
    def fill(hosted: HostedServer) -> None:
        proposed("Ask", more=(BY_OPERATOR,))(hosted)
        fault = {"id": "i1", "reason": "GPULost", "severity": "Fatal", "active": not over}
        load(hosted, HEALTHS, gpu_health("gpu-healthy", incidents=[fault]))

    with cluster(tmp_path, fill) as kubectl:
        code, _, err = kubectl("approve", "gpu-healthy", "--step", "RestartNode", "--yes")
        asked = "repair" in kubectl.get(QUARANTINES, "drained")["spec"]
    assert (code == 0) == asked == (not over)
    assert ("the faults of gpu-healthy are closed, so there is nothing to repair" in err) == over
