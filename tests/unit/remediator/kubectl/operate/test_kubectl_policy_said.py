"""What commands say where the policy in the cluster is wrong, or leaves nodes out."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.http.threaded import HostedServer
from tests.support.remediator.kubectl_cluster import cluster, lease, load
from tests.support.remediator.kubectl_objects import HEALTHS, NOW, node, verdict

GOES_ON = "a remediator that runs goes on by the last good one, one that starts now is in Shadow"


def under(policy: str, hosted: HostedServer) -> None:
    meta = {"name": "gpuward-policy", "namespace": "gpuward"}
    load(hosted, r.NAMESPACES, {"metadata": {"name": "gpuward"}})
    for name, pool in (("a1", "train"), ("b1", "serve")):
        found = node(name, "healthy")
        found["metadata"]["labels"] |= {"pool": pool}
        load(hosted, r.NODES, found)
        load(hosted, HEALTHS, verdict(name))
    load(hosted, r.CONFIGMAPS, {"metadata": meta, "data": {"policy.yaml": policy}})


@pytest.mark.parametrize("command", [("fleet",), ("why", "a1"), ("plan",)])
def test_a_policy_with_a_typo_is_said_with_what_holds_meanwhile(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    with cluster(tmp_path, lambda hosted: under("budgit: {}", hosted)) as kubectl:
        code, out, err = kubectl(*command)
    said = " ".join(f"{out} {err}".split())
    assert "the policy cannot be used (gpuward-policy: budgit is not a known key" in said
    assert GOES_ON in said
    assert code == (1 if command == ("plan",) else 0)
    assert ("--policy FILE judges by another" in said) == (command == ("plan",))


def test_a_selector_that_leaves_nodes_out_is_said_over_the_fleet(tmp_path: Path) -> None:
    narrow = "{mode: Enforce, nodeSelector: pool=train}"
    with cluster(tmp_path, lambda hosted: under(narrow, hosted)) as kubectl:
        _, out, _ = kubectl("fleet")
    left = "the policy's nodeSelector (pool=train) leaves out 1 of 2 GPU nodes"
    assert out.splitlines()[1] == f"{left}: no detector takes one of those"


def test_whoever_asks_for_a_node_is_told_that_a_typo_may_keep_all_from_it(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, lambda hosted: led("budgit: {}", {}, hosted)) as kubectl:
        code, out, err = kubectl("quarantine", "a1", "--reason", "fan noise", "--yes")
    assert code == 0, err
    said = "the policy cannot be used, kubectl gpuward preflight tells what holds meanwhile"
    assert said in " ".join(out.split())


UNREAD = {"gpuward.io/policy-unread": "gpuward-policy: budgit is not a known key"}
LAST_GOOD = {"gpuward.io/policy-last-good": "gpuward-policy: budgit is not a known key"}
UNABLE = {"gpuward.io/unable": "2026-03-05T11:51:00Z nodes: refused (403)"}
NOBODY = "so it is in Shadow, which nobody chose"


def led(policy: str, says: dict[str, str], hosted: HostedServer) -> None:
    """By a remediator that has just renewed its Lease, and says that of itself."""
    under(policy, hosted)
    held = lease(NOW - 2, "r-1")
    held["metadata"]["annotations"] = says
    load(hosted, r.LEASES, held)


@pytest.mark.parametrize(
    "policy", ["budgit: {}", "mode: Enforce"], ids=["wrong", "mended just now"]
)
@pytest.mark.parametrize("command", [("fleet",), ("why", "a1"), ("pause", "--reason", "x")])
def test_shadow_by_accident_is_said_and_not_the_last_good_policy(
    tmp_path: Path, command: tuple[str, ...], policy: str
) -> None:
    with cluster(tmp_path, lambda hosted: led(policy, UNREAD, hosted)) as kubectl:
        code, out, err = kubectl(*command)
    assert code == 0, err
    said = " ".join(out.split())
    assert f"{NOBODY} (gpuward-policy: budgit is not a known key): nothing is done" in said
    assert "last good" not in said
    assert "mode Enforce" not in said
    assert "the policy is Shadow" not in said


@pytest.mark.parametrize("command", [("fleet",), ("why", "a1"), ("plan",)])
def test_a_leader_that_goes_on_by_the_last_good_policy_is_believed(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    with cluster(tmp_path, lambda hosted: led("budgit: {}", LAST_GOOD, hosted)) as kubectl:
        _, out, err = kubectl(*command)
    said = " ".join(f"{out} {err}".split())
    assert ": the remediator that leads goes on by the last good one" in said
    assert "in Shadow" not in said


def test_a_request_under_shadow_by_accident_is_told_what_it_waits_for(tmp_path: Path) -> None:
    with cluster(tmp_path, lambda hosted: led("budgit: {}", UNREAD, hosted)) as kubectl:
        _, _, asked = kubectl("quarantine", "a1", "--reason", "x")
        code, out, _ = kubectl("quarantine", "a1", "--reason", "x", "--yes")
        checked = kubectl("preflight")[1]
    for said in (" ".join(asked.split()), " ".join(out.split())):
        assert f"{NOBODY}: nothing is touched before it can" in said
        assert "until then kubectl cordon a1 keeps new work off" in said
    assert code == 0
    assert "FAIL  leader: r-1 leads: the remediator has not been able" in checked


@pytest.mark.parametrize(
    "command",
    [("fleet",), ("plan",), ("quarantine", "a1", "--reason", "x", "--yes")],
)
def test_a_leader_that_cannot_act_is_said_by_all_that_rest_on_one(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    with cluster(tmp_path, lambda hosted: led("mode: Enforce", UNABLE, hosted)) as kubectl:
        code, out, err = kubectl(*command)
        checked = kubectl("preflight")[1]
    assert code == 0
    cannot = "leads and cannot act, since 2026-03-05 11:51 UTC (9m ago): nodes: refused (403)"
    assert f"a remediator {cannot}; nothing is taken out" in " ".join(err.split())
    assert cannot not in " ".join(out.split())
    assert f"FAIL  leader: r-1 {cannot}" in checked
