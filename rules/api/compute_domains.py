"""ComputeDomains of NVIDIA's DRA driver: the jobs that share memory over an NVLink domain.

The driver runs IMEX daemons for each one, as a DaemonSet whose pods have the label `LABEL` with
the UID of the ComputeDomain. It sets the same label on the nodes. Source: kubernetes-sigs/
dra-driver-nvidia-gpu, api/nvidia.com/resource/v1beta1/computedomain.go and
templates/compute-domain-daemon.tmpl.yaml.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from rules.text.printable import count, printable

PATH: Final = "/apis/resource.nvidia.com/v1beta1/computedomains"
LABEL: Final = "resource.nvidia.com/computeDomain"
MOST: Final = 8
"""ComputeDomains to show; a node runs the daemons of one."""
HOST_COMMAND: Final = "systemctl restart nvidia-imex"
"""Restarts the daemon of a node without the DRA driver."""
_UNKNOWN: Final = "of unknown status"
_UID: Final = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")


class ComputeDomain(NamedTuple):
    """One ComputeDomain; `nodes` has the status of the IMEX daemon of each node."""

    namespace: str
    name: str
    uid: str
    status: str
    nodes: Mapping[str, str]

    @property
    def restart_command(self) -> str:
        """Return the command that restarts its IMEX daemons on all nodes; "" without a valid UID.

        The DaemonSet creates the deleted pods again.
        """
        valid = _UID.fullmatch(self.uid) is not None
        return f"kubectl delete pods -A -l {LABEL}={self.uid}" if valid else ""

    def clause(self, node: str = "") -> str:
        """Return `ComputeDomain default/llm (Ready, 16 nodes, this one NotReady)`."""
        here = f", this one {self.nodes[node]}" if node in self.nodes else ""
        of = f"{self.status}, {count(len(self.nodes), 'node')}{here}"
        return printable(f"ComputeDomain {self.namespace}/{self.name} ({of})")[:300]


def used_on(
    objects: Iterable[Mapping[str, Any]], labels: Mapping[str, Mapping[str, str]]
) -> tuple[ComputeDomain, ...]:
    """Return the ComputeDomains that have one of these nodes, by status or by label of the node.

    `labels` are the labels of each node.
    """
    uids = {its[LABEL] for its in labels.values() if LABEL in its}
    found = map(_read, objects)
    used = [one for one in found if one.uid in uids or not labels.keys().isdisjoint(one.nodes)]
    return tuple(sorted(used)[:MOST])


def _read(found: Mapping[str, Any]) -> ComputeDomain:
    metadata, status = _map(found.get("metadata")), _map(found.get("status"))
    listed = status.get("nodes")
    nodes = [_map(one) for one in listed] if isinstance(listed, list) else []
    of_nodes = {str(one.get("name")): str(one.get("status") or _UNKNOWN) for one in nodes}
    return ComputeDomain(
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        status=str(status.get("status") or _UNKNOWN),
        nodes=of_nodes,
    )


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
