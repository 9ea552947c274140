"""Each ClusterRole that ships for people, less one right: a command names what it lacks.

A right that a command asks for and whose loss changes nothing stands in `NEEDLESS` with the
reason; one that no command asks for is for plain kubectl.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.sim.cluster.resource import CLUSTER_ROLES
from tests.support.cluster.rbac_grants import granted, without
from tests.support.remediator.kubectl_cluster import Kubectl
from tests.unit.remediator.kubectl.test_kubectl_roles import (
    FOR_ADMINISTRATORS,
    LINES,
    LOOKS,
    PLANS,
    bound,
)

Right = tuple[str, str]
COMMANDS = {
    "gpuward-viewer": [name for name in LINES if name in LOOKS],
    "gpuward-operator": [name for name in LINES if name not in FOR_ADMINISTRATORS | PLANS],
    "gpuward-planner": sorted(PLANS),
}
FOR_PLAIN_KUBECTL = {
    ("delete", "gpuward.io/gpuquarantines"): "kubectl delete gq cancels a session",
    ("get", "gpuward.io/gpuwardpauses"): "kubectl get gpuwardpause NAME",
    ("list", "coordination.k8s.io/leases"): "kubectl get lease -A, which messages advise",
    ("delete", "gpuward.io/gpuwardpauses"): "kubectl delete gpuwardpause",
    ("list", "gpuward.io/gpurecords"): "kubectl get gpurecords, which documents name",
}
"""What no command asks for, beside every `watch` (kubectl get -w), and when it is needed."""
NEEDLESS = {
    ("repaired", "configmaps"): "the agent is told, whatever the policy says",
    ("repaired", "gpuward.io/gpurecords"): "only the verdict speaks against a repair",
    ("repaired", "apps/daemonsets"): "nor what could not come back",
    ("repaired", "pods"): "the verdict speaks, of an agent that is gone as well",
    ("quarantine", "pods"): "how many pods go is said where it asks, not with --yes",
    ("quarantine", "gpuward.io/gpurecords"): "records say nothing about a request",
    ("release", "nodes"): "a hold that stays on the node is named where it asks, not with --yes",
    ("plan", "coordination.k8s.io/leases"): "a plan is what would be, whoever leads",
}
"""Command and resource: the answer is whole without it."""
WORDS = {
    "configmaps": "policy|configmap",
    "subjectaccessreviews": "permissions",
    "eviction": "pods/eviction",
}
"""How a message calls a resource, where it is not by its own name."""
SAID = re.compile(r"not allowed|may not|not seen|parts? missing|unseen|could not look")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that write a file or a folder do it here."""
    monkeypatch.chdir(tmp_path)


def asked(kubectl: Kubectl, since: int) -> set[Right]:
    """What the API server was asked since then."""
    return {
        (r.verb, "/".join(filter(None, (r.group, r.resource, r.subresource))))
        for r in list(kubectl.hosted.server.requests.all)[since:]
        if r.resource
    }


def used_by(role: str, folder: Path) -> dict[str, set[Right]]:
    """What each command asks for with the whole role."""
    found: dict[str, set[Right]] = {}
    for kubectl in bound(role, folder):
        for name in COMMANDS[role]:
            before = len(list(kubectl.hosted.server.requests.all))
            kubectl(name, *LINES[name])
            found[name] = asked(kubectl, before)
    return found


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, set[Right]]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("whole"))
        return {role: used_by(role, tmp_path_factory.mktemp(role)) for role in COMMANDS}


def less(role: str, right: Right, folder: Path) -> Iterator[Kubectl]:
    """The role without that right."""
    for kubectl in bound(role, folder):
        run, client = kubectl.hosted.run, kubectl.hosted.server.client
        rules = without(run(client.get(CLUSTER_ROLES, role))["rules"], *right)
        run(client.patch(CLUSTER_ROLES, role, {"rules": rules}))
        yield kubectl


def names(text: str, what: str) -> bool:
    """Whether it is said that this may not be read or written."""
    plural = what.rpartition("/")[2]
    word = WORDS.get(plural, plural.removesuffix("s"))
    told = re.search(word, text, re.IGNORECASE) or "missing.txt" in text
    return bool(SAID.search(text) and told)


def wrote(kubectl: Kubectl, since: int) -> list[str]:
    """What was written, beside the questions that are POSTs."""
    return [
        f"{r.verb} {r.path}"
        for r in list(kubectl.hosted.server.requests.all)[since:]
        if r.verb in {"create", "patch", "update", "delete"}
        and r.code < 300
        and not r.resource.endswith("reviews")
    ]


@pytest.mark.parametrize(
    ("role", "right"),
    [(role, right) for role in COMMANDS for right in sorted(granted(role)) if right[0] != "watch"],
    ids=lambda one: one if isinstance(one, str) else f"{one[0]}-{one[1].replace('/', '.')}",
)
def test_a_command_names_the_right_that_a_role_lacks(
    used: dict[str, dict[str, set[Right]]], tmp_path: Path, role: str, right: Right
) -> None:
    verb, what = right
    commands = [name for name in COMMANDS[role] if right in used[role][name]]
    if not commands:
        looks = {"get", "list"} if role == "gpuward-planner" else set()
        assert right in FOR_PLAIN_KUBECTL or verb in looks, "no command needs it"
        return
    silent, half = [], []
    for kubectl in less(role, right, tmp_path):
        for name in commands:
            before = len(list(kubectl.hosted.server.requests.all))
            code, out, err = kubectl(name, *LINES[name])
            if not names(out + err, what) and (name, what) not in NEEDLESS:
                silent.append((name, code, out + err))
            if code and "not allowed" in err and (done := wrote(kubectl, before)):
                half.append((name, done, err))
    assert silent == []
    # What came before the refusal is said with it.
    assert [one for one in half if "but its session could not be told" not in one[2]] == []
