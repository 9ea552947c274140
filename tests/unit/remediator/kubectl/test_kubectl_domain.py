"""`--nvlink-domain`: an NVLink domain is quarantined, explained and released as a unit."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.server import HostedServer
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, lease, load
from tests.support.remediator.kubectl_objects import (
    HEALTHS,
    NOW,
    QUARANTINES,
    Object,
    ago,
    node,
    policy_map,
    quarantined,
    session,
    sick,
)

ENFORCE = "mode: Enforce\n"
RACK = ("a0", "a1", "a2")
ASKED = ("--nvlink-domain", "d1", "--reason", "bad switch")
CAUSE = {"source": "Human", "reason": "Requested", "message": "bad switch", "by": "ann"}
MEMBER: Object = {**CAUSE, "at": ago(5), "nvlinkDomain": "d1"}


def of_domain(made: Object, domain: str = "d1") -> Object:
    made["metadata"]["labels"]["gpuward.io/nvlink-domain"] = domain
    return made


def no_more(hosted: HostedServer) -> None:
    """The rack alone."""


@contextmanager
def rack(
    folder: Path, more: Callable[[HostedServer], None] = no_more, policy: str = ENFORCE
) -> Iterator[Kubectl]:
    """Three nodes of domain d1, `a1` with an open session of its agent; `b0` is in d2."""

    def fill(hosted: HostedServer) -> None:
        load(hosted, r.NAMESPACES, {"metadata": {"name": "gpuward"}})
        load(hosted, r.CONFIGMAPS, policy_map(policy))
        load(
            hosted, r.NODES, *(of_domain(node(name)) for name in RACK), of_domain(node("b0"), "d2")
        )
        load(hosted, HEALTHS, sick("a1"))
        load(hosted, QUARANTINES, session("a1-1", "a1", "Pending", "waits"))
        more(hosted)

    with cluster(folder, fill) as kubectl:
        load(kubectl.hosted, r.LEASES, lease(NOW, "one"))
        yield kubectl


def members(kubectl: Kubectl) -> dict[str, list[str]]:
    """The domains that the causes of each node's session name."""
    code, out, _ = kubectl("why", "--nvlink-domain", "d1", "-o", "json")
    assert code == 0
    items = json.loads(out)["items"]
    return {
        one["metadata"]["name"]: [c["nvlinkDomain"] for c in causes if "nvlinkDomain" in c]
        for one in items
        if (causes := (one["session"] or {"spec": {"causes": []}})["spec"]["causes"]) is not None
    }


def test_one_question_then_a_session_for_each_node(tmp_path: Path) -> None:
    with rack(tmp_path) as kubectl:
        code, _, err = kubectl("quarantine", *ASKED)
        assert code == 1
        assert err.count("This takes NVLink domain d1 out of service: 3 nodes (a0, a1, a2)") == 1
        assert "even if no other node has free GPUs. Each repair step needs an operator." in err
        assert "It exceeds the budget" in err
        assert members(kubectl) == {"a0": [], "a1": [], "a2": []}
        code, out, _ = kubectl("quarantine", *ASKED, "--yes")
        assert code == 0
        assert "a1: your reason was added to open session a1-1" in out
        assert "NVLink domain d1: quarantine requested for 3 nodes" in out
        assert members(kubectl) == {"a0": ["d1"], "a1": ["d1"], "a2": ["d1"]}


def test_a_repeated_command_completes_the_domain(tmp_path: Path) -> None:
    def half(hosted: HostedServer) -> None:
        load(hosted, QUARANTINES, session("a0-1", "a0", "Pending", "", spec={"causes": [MEMBER]}))

    with rack(tmp_path, half) as kubectl:
        _, out, _ = kubectl("quarantine", *ASKED, "--yes")
        assert "NVLink domain d1: quarantine requested for 2 nodes" in out
        assert members(kubectl) == {"a0": ["d1"], "a1": ["d1"], "a2": ["d1"]}
        code, out, _ = kubectl("quarantine", *ASKED, "--yes")
        assert (code, "every node has a session for it" in out) == (0, True)
        assert members(kubectl) == {"a0": ["d1"], "a1": ["d1"], "a2": ["d1"]}


def test_a_node_that_fails_does_not_keep_the_others(tmp_path: Path) -> None:
    def releasing(hosted: HostedServer) -> None:
        asked = {"by": "bob", "reason": "healthy"}
        spec = {"causes": [CAUSE], "release": asked}
        load(hosted, QUARANTINES, session("a0-1", "a0", "Marked", "", spec=spec))

    with rack(tmp_path, releasing) as kubectl:
        code, out, err = kubectl("quarantine", *ASKED, "--yes")
    assert code == 1
    assert "a0: a0 is being released, as bob requested" in err
    assert "1 of 3 nodes failed" in err
    assert "run the command again for the rest of the domain" in err
    assert "a2: session a2-by-hand-" in out


def in_session(hosted: HostedServer) -> None:
    load(
        hosted,
        QUARANTINES,
        session("a0-1", "a0", "Marked", "", spec={"causes": [MEMBER]}),
        session("a2-1", "a2", "Quarantined", "", spec={"causes": [CAUSE]}),
    )
    load(hosted, r.NODES, of_domain(quarantined("a3", "a3-1")))
    load(hosted, QUARANTINES, session("a3-1", "a3", "Marked", "", spec={"causes": [MEMBER]}))


def test_why_and_fleet_show_the_domain_as_a_unit(tmp_path: Path) -> None:
    with rack(tmp_path, in_session) as kubectl:
        code, out, _ = kubectl("why", "--nvlink-domain", "d1")
        assert code == 0
        assert out.startswith("NVLink domain d1: 1 of 4 nodes quarantined, not yet: a0, a1, a2\n")
        assert "cause    asked for by ann 5m ago: bad switch" in out
        assert "next     drained after all are quarantined; see kubectl gpuward why a0" in out
        assert 'kubectl gpuward release --nvlink-domain d1 --reason "..."' in out
        rows = {line.split()[0]: line for line in out.splitlines()[-4:]}
        assert rows["a1"].split() == [
            "a1",
            "Unhealthy",
            "Pending,",
            "not",
            "for",
            "the",
            "domain",
            "<none>",
        ]
        fleet = kubectl("fleet")[1]
        assert "NVLink domain d1: 1 of 4 nodes quarantined, not yet: a0, a1, a2" in fleet
        one = kubectl("why", "a0")[1]
        assert "asked for by ann (Degraded, with NVLink domain d1): bad switch" in one
        assert "quarantined as a unit: kubectl gpuward why --nvlink-domain d1" in one


def test_release_returns_the_sessions_of_the_domain_and_no_other(tmp_path: Path) -> None:
    with rack(tmp_path, in_session) as kubectl:
        load(kubectl.hosted, HEALTHS, sick("a3"))
        code, _, err = kubectl("release", *ASKED)
        assert (code, "This returns 2 nodes of NVLink domain d1 to service now." in err) == (
            1,
            True,
        )
        assert "Faults are still active on a3." in err
        code, out, _ = kubectl("release", *ASKED, "--yes")
        assert (code, "release requested for 2 nodes" in out) == (0, True)
        specs = {name: kubectl.get(QUARANTINES, name)["spec"] for name in ("a0-1", "a2-1", "a3-1")}
        assert {name for name, spec in specs.items() if "release" in spec} == {"a0-1", "a3-1"}
        code, out, _ = kubectl("release", *ASKED, "--yes")
        assert (code, "the release of 2 nodes is requested" in out) == (0, True)


@pytest.mark.parametrize("command", ["quarantine", "release", "why"])
def test_an_unknown_domain_is_an_error(tmp_path: Path, command: str) -> None:
    reason = () if command == "why" else ("--reason", "x", "--yes")
    with rack(tmp_path) as kubectl:
        code, _, err = kubectl(command, "--nvlink-domain", "d9", *reason)
    assert code == 1
    assert "no session for NVLink domain d9 is open" in err or "the domains are: d1, d2" in err


@pytest.mark.parametrize(
    ("given", "error"),
    [
        pytest.param(
            ("--nvlink-domain", "d1,x=y"), "cannot be the value of a label", id="hostile"
        ),
        pytest.param(("--nvlink-domain", ""), "cannot be the value of a label", id="empty"),
        pytest.param(("a0", "--nvlink-domain", "d1"), "without nodes and --selector", id="both"),
        pytest.param(("-l", "a=b", "--nvlink-domain", "d1"), "without nodes and", id="selector"),
    ],
)
def test_a_wrong_domain_is_a_usage_error(
    tmp_path: Path, given: tuple[str, ...], error: str
) -> None:
    with rack(tmp_path) as kubectl:
        code, _, err = kubectl("quarantine", *given, "--reason", "x")
    assert (code, error in err) == (64, True)
