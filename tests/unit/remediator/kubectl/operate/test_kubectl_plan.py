"""`plan` for what it is easily wrong about: sessions nobody looked at yet, strangers, full
fleets.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.http.threaded import HostedServer
from hack.sim.cluster.resource import CONFIGMAPS, NAMESPACES, NODES, PODS
from tests.support.remediator.kubectl_cluster import cluster, load
from tests.support.remediator.kubectl_objects import (
    HEALTHS,
    PAUSES,
    QUARANTINES,
    marked,
    node,
    session,
    sick,
)

BY_HAND = {"source": "Human", "reason": "Requested", "severity": "Degraded", "by": "ann"}


def asked(on: str, **spec: Any) -> Object:
    """A person's session that no remediator has looked at."""
    made = session(f"{on}-by-hand", on, "", "", spec={"causes": [BY_HAND], **spec})
    return {**made, "status": {}}


def gpu_node(name: str, **labels: str) -> Object:
    made = node(name, labels=labels)
    made["status"]["allocatable"] = {"nvidia.com/gpu": "8"}
    return made


def gpu_pod(name: str, on: str) -> Object:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "u-w"}
    resources = {"limits": {"nvidia.com/gpu": "8"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default",
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "nodeName": on,
            "containers": [{"name": "main", "image": "w:1", "resources": resources}],
        },
        "status": {"phase": "Running"},
    }  # fmt: skip


def planned(folder: Path, sessions: list[Object], pods: list[Object]) -> dict[str, Any]:
    def fill(hosted: HostedServer) -> None:
        load(hosted, NODES, gpu_node("sick"), gpu_node("other"), gpu_node("third"))
        stranger = gpu_node("stranger")
        del stranger["metadata"]["labels"]["gpuward.io/gpus"]
        load(hosted, NODES, stranger)
        load(hosted, QUARANTINES, *sessions)
        load(hosted, PODS, *pods)

    with cluster(folder, fill, led=True) as kubectl:
        code, out, err = kubectl("plan", "-o", "json")
    assert (code, err) == (0, "")
    (only,) = json.loads(out)["items"]
    return dict(only)


def test_a_request_that_nobody_looked_at_yet_is_planned(tmp_path: Path) -> None:
    found = planned(tmp_path, [asked("sick")], [gpu_pod("a", "sick")])
    assert (found["would"], found["evictable"]) == ("drain", 1)


def test_a_node_that_the_policy_does_not_select_is_planned_for_a_person(tmp_path: Path) -> None:
    found = planned(tmp_path, [asked("stranger", level="Cordon")], [])
    assert (found["metadata"]["name"], found["would"]) == ("stranger", "cordon and taint")


def test_walk_a_sick_node_that_a_person_cordoned_is_planned_as_it_is_done(
    tmp_path: Path,
) -> None:
    def fill(hosted: HostedServer) -> None:
        by_hand = node("by-hand", "unhealthy", spec={"unschedulable": True})
        load(hosted, NODES, by_hand, gpu_node("other"), gpu_node("third"))
        load(hosted, HEALTHS, sick("by-hand"))

    with cluster(tmp_path, fill, led=True) as kubectl:
        _, out, _ = kubectl("plan", "by-hand", "-o", "json")
        (one,) = json.loads(out)["items"]
        assert (one["metadata"]["name"], one["would"]) == ("by-hand", "drain")
        _, out, _ = kubectl("plan", "by-hand")
    assert "may enforce" in out, "there is no ConfigMap: what is in force nobody can read"
    assert "in Shadow nothing is done" not in out


def test_a_release_that_was_asked_for_is_what_would_be_done(tmp_path: Path) -> None:
    asks = {"release": {"by": "ann", "reason": "tested"}}
    assert planned(tmp_path, [asked("sick", **asks)], [])["would"] == "release"


@pytest.mark.parametrize("severity", ["Degraded", "Fatal"])
def test_a_degraded_pod_that_fits_no_other_node_stays(tmp_path: Path, severity: str) -> None:
    cause = {**BY_HAND, "severity": severity}
    pods = [gpu_pod(name, on) for name, on in (("a", "sick"), ("b", "other"), ("c", "third"))]
    found = planned(tmp_path, [asked("sick", causes=[cause])], pods)
    assert found["evictable"] == (severity == "Fatal")
    assert any("no other node has 8 free GPUs" in b for b in found["blocked"]) == (
        severity == "Degraded"
    )


PAUSED = {
    "apiVersion": "gpuward.io/v1alpha1",
    "kind": "GPUWardPause",
    "metadata": {"name": "pause-1"},
    "spec": {"scope": {"nodeSelector": {"matchLabels": {"paused": "yes"}}}, "by": "ann"},
}
ROOM = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "gpuward-policy", "namespace": "gpuward"},
    "data": {
        "policy.yaml": "apiVersion: gpuward.io/v1alpha1\nkind: QuarantinePolicy\nmode: Enforce\n"
        "budget:\n  maxUnavailable: {percent: 100, atMost: 99}\n"
        "  maxNew: {count: 99, window: 1h}\n  perReason: {count: 99, window: 1h}\n"
    },
}
OUT, LULL = {"gpuward.io/opt-out": "true"}, {"paused": "yes"}
PAUSE_SAID, OUT_SAID = "paused by ann with GPUWardPause pause-1", "opt-out=true"
AFTER = "wait, then drain"
COMBINATIONS: list[tuple[str, str, dict[str, str], str, str]] = [
    # phase of the session ("" for none), the node's Ready, its labels; what is said, and why
    ("", "True", {}, "drain", ""),
    ("", "True", LULL, "wait", PAUSE_SAID),
    ("", "True", OUT, "nothing", "opted out"),
    ("Pending", "True", {}, "drain", ""),
    ("Pending", "True", LULL, "wait", PAUSE_SAID),
    ("Pending", "True", OUT, "wait", OUT_SAID),
    ("Pending", "Unknown", {}, "cordon and taint, wait, then drain", "kubelet is silent"),
    ("Marked", "True", {}, "drain", ""),
    ("Marked", "True", LULL, AFTER, PAUSE_SAID),
    ("Marked", "True", OUT, AFTER, OUT_SAID),
    ("Draining", "True", {}, "drain", ""),
    ("Draining", "True", LULL, AFTER, PAUSE_SAID),
    ("Draining", "True", OUT, AFTER, OUT_SAID),
    ("Draining", "True", {**OUT, **LULL}, AFTER, OUT_SAID),
    ("Draining", "Unknown", {}, AFTER, "kubelet is silent"),
    ("Quarantined", "True", LULL, "stay Quarantined", "waiting for the repair"),
    ("Validating", "True", {}, "drain", ""),  # its fault came back
]


def test_plan_says_what_will_really_happen(tmp_path: Path) -> None:
    """Every state beside every word of people, of a silent kubelet, and without the node."""
    nodes, sessions, verdicts, expected = [], [], [], {}
    for number, (phase, ready, labels, would, because) in enumerate(COMBINATIONS):
        name = f"n-{number:02d}"
        sign = {"gpuward.io/gpus": "8", **labels}
        on = node(name, "unhealthy") if phase in {"", "Pending"} else marked(name, f"{name}-s")
        on["metadata"]["labels"].update(sign)
        on["status"]["conditions"] = [{"type": "Ready", "status": ready}]
        nodes.append(on)
        verdicts.append(sick(name))
        if phase:
            sessions.append(session(f"{name}-s", name, phase, "as it was then"))
        expected[name] = (would, because)
    sessions += [session(f"gone-{phase}", f"gone-{phase.lower()}", phase, "as it was then")
                 for phase in ("Pending", "Draining")]  # fmt: skip
    gone = ("end, NodeGone", "there is no node gone-")
    expected |= dict.fromkeys(("gone-pending", "gone-draining"), gone)

    def fill(hosted: HostedServer) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpuward"}}
        load(hosted, NAMESPACES, namespace)
        load(hosted, NODES, *nodes, *(gpu_node(f"well-{i}") for i in range(9)))
        load(hosted, QUARANTINES, *sessions)
        load(hosted, HEALTHS, *verdicts)
        load(hosted, PAUSES, PAUSED)
        load(hosted, CONFIGMAPS, ROOM)

    with cluster(tmp_path, fill, led=True) as kubectl:
        code, out, err = kubectl("plan", "-o", "json")
        told = kubectl("fleet")[1]
    assert (code, err) == (0, "")
    found = {one["metadata"]["name"]: one for one in json.loads(out)["items"]}
    said = {
        name: ", then ".join(filter(None, (one["would"], one["then"])))
        for name, one in found.items()
    }
    assert said == {name: would for name, (would, _) in expected.items()}
    wrong = {
        n: found[n]["because"]
        for n, (_, because) in expected.items()
        if because not in found[n]["because"] or bool(because) != bool(found[n]["because"])
    }
    assert wrong == {}  # fmt: skip
    assert "open sessions of what is no GPU node, or gone: gone-draining, gone-pending" in told


def test_plan_knows_gangs(tmp_path: Path) -> None:
    """Two bad nodes of one gang and room for one: none is taken, as the remediator has it."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "llm", "uid": "u-llm"}
    members = [gpu_pod(name, on) for name, on in (("a", "sick"), ("b", "other"))]
    for pod in members:
        pod["metadata"]["ownerReferences"] = [{**job, "controller": True}]

    def fill(hosted: HostedServer) -> None:
        load(hosted, NODES, *(gpu_node(name) for name in ("sick", "other", *"cdefghijkl")))
        for on in ("sick", "other"):
            made = session(f"{on}-s", on, "Pending", "m")
            made["spec"]["causes"][0]["severity"] = "Degraded"  # a Fatal one goes in order
            load(hosted, QUARANTINES, made)
            verdict = sick(on)
            verdict["status"]["incidents"][0]["severity"] = "Degraded"
            load(hosted, HEALTHS, verdict)
        load(hosted, PODS, *members)

    with cluster(tmp_path, fill, led=True) as kubectl:
        found = json.loads(kubectl("plan", "-o", "json")[1])["items"]
    assert [one["would"] for one in found] == ["wait", "wait"]
    assert all("gang Job default/llm has 2 bad nodes" in one["because"] for one in found)


def test_what_drains_have_in_common_is_read_once_and_nothing_is_written(tmp_path: Path) -> None:
    """A list of every pod per drained node would keep the API server of a large fleet busy."""
    names = [f"n{number}" for number in range(6)]

    def fill(hosted: HostedServer) -> None:
        load(hosted, NODES, *map(gpu_node, names))
        load(hosted, QUARANTINES, *map(asked, names[:4]))
        load(hosted, PODS, *(gpu_pod(f"p-{name}", name) for name in names[:4]))

    with cluster(tmp_path, fill, led=True) as kubectl:
        before = len(kubectl.hosted.server.requests.all)
        code, out, err = kubectl("plan", "-o", "json")
        asked_for = list(kubectl.hosted.server.requests.all)[before:]
        kept = [kubectl.get(QUARANTINES, f"{name}-by-hand")["status"] for name in names[:4]]
    assert (code, err, [one["would"] for one in json.loads(out)["items"]]) == (
        0,
        "",
        ["drain"] * 4,
    )
    counted = Counter(one.resource for one in asked_for if one.verb != "create")
    assert counted["daemonsets"] == counted["poddisruptionbudgets"] == 1
    assert counted["pods"] == 4 + 1 + 1, "of each node, of the agents, and of the whole fleet"
    assert "secrets" not in counted
    assert {one.verb for one in asked_for} - {"create"} == {"get", "list"}
    assert kept == [{}] * 4


def test_one_session_of_a_newer_release_does_not_end_the_plan_of_all(tmp_path: Path) -> None:
    """A phase that this release does not know: its node says so, the others are planned."""
    newer = session("sick-1", "sick", "Hibernating", "Asleep.")
    with cluster(tmp_path, lambda hosted: _two(hosted, newer), led=True) as kubectl:
        code, out, err = kubectl("plan", "-o", "json")
        first, second = json.loads(out)["items"]
    assert (code, err) == (0, "")
    assert (first["metadata"]["name"], first["would"]) == ("other", "drain")
    assert (second["would"], second["blockedBy"]) == ("stay Hibernating", "SessionUnreadable")


def _two(hosted: HostedServer, other: Object) -> None:
    load(hosted, NODES, gpu_node("sick"), gpu_node("other"), gpu_node("third"))
    load(hosted, QUARANTINES, other, asked("other"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan", "-l", "rack=a17"), "no node that the policy selects has the labels rack=a17"),
        (("plan", "-l", "rack=a1"), "nothing would be done"),
    ],
)
def test_labels_that_no_node_has_are_not_taken_for_calm(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    def fill(hosted: HostedServer) -> None:
        load(hosted, NODES, gpu_node("well", rack="a1"), gpu_node("sick"))
        load(hosted, QUARANTINES, asked("sick"))

    with cluster(tmp_path, fill, led=True) as kubectl:
        code, out, _ = kubectl(*words)
    assert (code, out.splitlines()[-1]) == (0, said)
