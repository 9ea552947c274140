"""Reports of `kubectl gpuward preflight`, and clusters with parts of an installation."""

from collections.abc import Callable, Sequence
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.resource import Caller
from hack.sim.cluster.server import HostedServer
from hack.sim.manifests import post_manifests
from tests.support.cluster.manifest_builds import build
from tests.support.remediator.kubectl_cluster import REPOSITORY, Kubectl, load
from tests.support.remediator.kubectl_objects import Object, policy_map

BASE = REPOSITORY / "daemonset" / "base"
ADMIN: dict[str, Any] = {
    "authorization": "RBAC",
    "tokens": {"secret": Caller("root", ("system:masters", "system:authenticated"))},
}
NOT_CHECKED = {"CustomResourceDefinition", "Deployment", "DaemonSet", "Namespace", "ConfigMap"}
"""Of a component, what the report about it does not rest on."""


def lines(kubectl: Kubectl, *arguments: str) -> tuple[int, dict[str, str]]:
    """Exit status, and each line of the report by the name of its check."""
    code, out, _ = kubectl("preflight", *arguments)
    return code, {line[6:].partition(":")[0]: line for line in out.splitlines()}


def having(objects: Sequence[Object], policy: str = "") -> Callable[[HostedServer], None]:
    """Namespace gpuward with these objects, and a policy where one is given."""

    def fill(hosted: HostedServer) -> None:
        load(hosted, r.NAMESPACES, {"metadata": {"name": "gpuward"}})
        made = [*objects, *([policy_map(policy)] if policy else [])]
        hosted.run(post_manifests(hosted.server.client, made, namespace="gpuward"))

    return fill


def component(*names: str) -> list[Object]:
    return [one for one in build(*names) if one["kind"] not in NOT_CHECKED]
