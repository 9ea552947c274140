"""A question tells the change from how the node is now, not from how nodes usually are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.http.threaded import HostedServer
from tests.support.remediator.kubectl_cluster import cluster, lease, load
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import (
    BLOCKED,
    HEALTHY,
    NOW,
    QUARANTINES,
    session,
)


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
        ("Drain", "Drain", "its pods are to be evicted, too"),
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
    assert code == 0
    assert "its release goes over that, as ann asked, and the hold stays on the node" in out
    assert "a release does not happen" not in out


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


def test_nothing_is_let_go_in_shadow(tmp_path: Path) -> None:
    with cluster(tmp_path, load_fleet) as kubectl:
        code, _, err = kubectl("repair", "gpu-shadow", "--step", "RestartNode", "--yes")
        assert (code, "is Shadow: nothing is repaired there" in err) == (1, True)
