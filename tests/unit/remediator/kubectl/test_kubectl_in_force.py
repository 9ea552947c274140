"""What commands say of who leads and of the policy in the cluster."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import LEASES, NAMESPACES, PODS
from hack.sim.cluster.server import HostedServer
from tests.support.remediator.kubectl_cluster import cluster, lease, load
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import (
    BLOCKED,
    HEALTHS,
    NOW,
    QUARANTINES,
    gpu_health,
    node,
    policy_map,
)

MESSAGE = (
    "gpuward-remediator has had no leader for 20m: quarantine, repair and release are stopped"
)
LINES = {
    "fleet": (),
    "why": (BLOCKED,),
    "plan": (),
    "quarantine": (BLOCKED, "--reason", "x", "--yes"),
    "approve": (BLOCKED, "--step", "RestartNode", "--yes"),
    "release": (BLOCKED, "--reason", "x", "--yes"),
    "unhold": ("gpu-held",),
    "pause": ("--reason", "x", "--yes"),
    "hold": (BLOCKED, "--reason", "x"),
    "mark-replaced": (BLOCKED, "--reason", "x"),
}


def renewed(seconds_ago: float, holder: str = "r-1") -> Callable[[HostedServer], None]:
    def fill(hosted: HostedServer) -> None:
        load_fleet(hosted)
        load(hosted, LEASES, lease(NOW - seconds_ago, holder))

    return fill


def test_without_a_leader_requests_wait_and_this_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # evidence writes its files here
    with cluster(tmp_path, renewed(20 * 60)) as kubectl:
        for name, arguments in LINES.items():
            code, out, err = kubectl(name, *arguments)
            assert code == 0, err
            assert MESSAGE in err, name
            assert MESSAGE not in out, "standard output has only the answer"
        assert MESSAGE in kubectl("preflight")[1]
        assert MESSAGE not in kubectl("evidence", BLOCKED)[2]


@pytest.mark.parametrize(
    ("runs_in", "message"),
    [
        pytest.param("new", True, id="installed, and never led: its token is refused, say"),
        pytest.param("", True, id="nowhere"),
        pytest.param("right", False, id="elsewhere"),
    ],
)
def test_why_promises_nothing_where_no_remediator_has_ever_led(
    tmp_path: Path, runs_in: str, message: bool
) -> None:
    nothing = "nothing: gpuward-remediator has had no leader so far; after it has one:"
    with cluster(tmp_path, pod_in(runs_in) if runs_in else load_fleet) as kubectl:
        _, out, err = kubectl("why", BLOCKED, "-n", "new")
        assert (nothing in " ".join(out.split())) is message
        for answer in (err, kubectl("fleet", "-n", "new")[2]):
            assert "no remediator has ever led in namespace new" in answer


OF_A_REMEDIATOR = {
    "app.kubernetes.io/name": "gpuward", "app.kubernetes.io/component": "remediator",
}  # fmt: skip
NEVER = "no remediator has ever led in namespace wrong"
FIND = (
    "kubectl get lease -A --field-selector metadata.name=gpuward-remediator finds where one leads"
)


def pod_in(namespace: str) -> Callable[[HostedServer], None]:
    """The fleet, and a remediator's pod in a namespace."""

    def fill(hosted: HostedServer) -> None:
        load_fleet(hosted)
        metadata = {"name": "r-1", "namespace": namespace, "labels": OF_A_REMEDIATOR}
        load(hosted, NAMESPACES, {"metadata": {"name": namespace}})
        load(hosted, PODS, {"metadata": metadata, "spec": {"nodeName": "cpu-1"}})

    return fill


def test_a_namespace_where_none_ever_led_is_named_with_how_to_find_the_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with cluster(tmp_path, load_fleet) as kubectl:
        for name, arguments in LINES.items():
            _, out, err = kubectl(name, *arguments, "-n", "wrong")
            assert NEVER in err, name
            assert FIND in err, name
            assert NEVER not in out
            assert NEVER not in kubectl(name, *arguments)[2], "in the right one it is no news"


@pytest.mark.parametrize("name", ["quarantine", "approve"])
def test_what_is_judged_by_the_policy_of_no_remediator_is_not_asked_for(
    tmp_path: Path, name: str
) -> None:
    """In the wrong namespace there is no policy, so it would say that nothing is touched, while
    the remediator in the right one evicts.
    """
    with cluster(tmp_path, pod_in("right")) as kubectl:
        before = kubectl.get(QUARANTINES, f"{BLOCKED}-0badcafe")
        code, out, err = kubectl(name, *LINES[name], "-n", "wrong")
        assert (code, out) == (1, "")
        assert f"nothing was requested: {NEVER}, one runs in right: name it with -n right" in err
        assert kubectl.get(QUARANTINES, f"{BLOCKED}-0badcafe") == before
    with cluster(tmp_path, pod_in("wrong")) as kubectl:
        code, _, err = kubectl(name, *LINES[name], "-n", "wrong")
        assert (code, f"{NEVER}, though its pods are there; see" in err) == (0, True)


@pytest.mark.parametrize(
    ("runs_in", "code"),
    [pytest.param("", 1, id="nobody obeys"), pytest.param("right", 0, id="obeyed elsewhere")],
)
def test_a_pause_that_nobody_obeys_is_not_believed_unasked(
    tmp_path: Path, runs_in: str, code: int
) -> None:
    with cluster(tmp_path, pod_in(runs_in) if runs_in else load_fleet) as kubectl:
        found, out, err = kubectl("pause", "--reason", "x", "-n", "wrong")
    assert (found, bool(out)) == (code, not code)
    assert NEVER in err
    assert ("Nothing was changed; confirm with --yes" in err) is bool(code)


@pytest.mark.parametrize("unknown", ["/leases/", "/api/v1/pods$"])
@pytest.mark.parametrize("code", [429, 500, 504])
def test_a_pause_is_given_where_nobody_can_see_who_leads(
    tmp_path: Path, unknown: str, code: int
) -> None:
    """A cluster in trouble is when people pause."""
    with cluster(tmp_path, load_fleet) as kubectl:
        error = ApiError(code, "Trouble", "etcd has no leader")
        faults = kubectl.hosted.server.faults
        kubectl.hosted.call(lambda: faults.fail(error, path=unknown, times=None))
        found, out, _ = kubectl("pause", "--reason", "x", "-n", "wrong")
    assert (found, out.startswith("paused on every node")) == (0, True)


GOES_ON = (
    "a running remediator uses the last valid policy, one that starts now runs in Shadow mode"
)


def under(policy: str, hosted: HostedServer) -> None:
    load(hosted, r.NAMESPACES, {"metadata": {"name": "gpuward"}})
    for name, pool in (("a1", "train"), ("b1", "serve")):
        found = node(name, "healthy")
        found["metadata"]["labels"] |= {"pool": pool}
        load(hosted, r.NODES, found)
        load(hosted, HEALTHS, gpu_health(name))
    load(hosted, r.CONFIGMAPS, policy_map(policy))


@pytest.mark.parametrize("command", [("fleet",), ("why", "a1"), ("plan",)])
def test_an_invalid_policy_is_reported_with_the_one_in_use(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    with cluster(tmp_path, lambda hosted: under("budgit: {}", hosted)) as kubectl:
        code, out, err = kubectl(*command)
    message = " ".join(f"{out} {err}".split())
    assert "the policy cannot be used (gpuward-policy: budgit is not a known key" in message
    assert GOES_ON in message
    assert code == (1 if command == ("plan",) else 0)
    assert ("to use another one, add --policy FILE" in message) == (command == ("plan",))


def test_a_selector_that_excludes_nodes_is_reported_above_the_fleet(tmp_path: Path) -> None:
    narrow = "{mode: Enforce, nodeSelector: pool=train}"
    with cluster(tmp_path, lambda hosted: under(narrow, hosted)) as kubectl:
        _, out, _ = kubectl("fleet")
    left = "the policy's nodeSelector (pool=train) leaves out 1 of 2 GPU nodes"
    assert out.splitlines()[1] == f"{left}: these are never quarantined automatically"


UNREAD = {"gpuward.io/policy-unread": "gpuward-policy: budgit is not a known key"}
NOBODY = "so it runs in Shadow"


def led(policy: str, annotations: dict[str, str], hosted: HostedServer) -> None:
    """A Lease that was just renewed, with these annotations of its holder."""
    under(policy, hosted)
    held = lease(NOW - 2, "r-1")
    held["metadata"]["annotations"] = annotations
    load(hosted, r.LEASES, held)


@pytest.mark.parametrize(
    "policy", ["budgit: {}", "mode: Enforce"], ids=["wrong", "mended just now"]
)
@pytest.mark.parametrize("command", [("fleet",), ("why", "a1"), ("pause", "--reason", "x")])
def test_shadow_without_a_policy_is_reported(
    tmp_path: Path, command: tuple[str, ...], policy: str
) -> None:
    with cluster(tmp_path, lambda hosted: led(policy, UNREAD, hosted)) as kubectl:
        code, out, err = kubectl(*command)
    assert code == 0, err
    message = " ".join(out.split())
    assert f"{NOBODY} (gpuward-policy: budgit is not a known key): failed nodes are" in message
    assert "last valid" not in message
    assert "mode Enforce" not in message
    assert "the policy is Shadow" not in message
