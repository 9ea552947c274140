"""Every command that docs, runbooks, alerts and `why` print is typed here, against a cluster."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.server import HostedServer
from hack.sim.manifests import post_manifests, read_manifests
from tests.support.cluster.printed_commands import Printed, printed_commands
from tests.support.remediator.kubectl_cluster import REPOSITORY, Kubectl, cluster, load
from tests.support.remediator.kubectl_fleet import load_fleet

KUBECTL = shutil.which("kubectl")
PRINTED = printed_commands()
OURS = [one for one in PRINTED if one.arguments[1] == "gpuward"]
PLAIN = [one for one in PRINTED if one.arguments[1] != "gpuward"]
LOOKS = {"fleet", "why", "plan"}
NOT_THERE = {"solo-0000": "gpu-blocked", "COMMAND": "fleet", "UUID": "GPU-0badcafe",
             "SERIAL": "1650000000001", "PAUSE": "pause-0badcafe",
             "$labels.pause": "pause-0badcafe", "pause-XXXXXXXX": "pause-0badcafe",
             "gpu-gone": "gpu-healthy", "FILE": ""}  # fmt: skip
"""Names of examples, and what stands for them here."""
WRITES = {"label", "annotate", "taint", "cordon", "uncordon", "patch", "scale", "delete"}
UNDERSTOOD = {
    "logs", "port-forward", "rollout", "apply", "create", "delete", "scale", "--raw", "can-i",
}  # fmt: skip
"""Need a kubelet, a file, an input, an address or a reader of protobuf that the simulated cluster
has not: `kubectl` only has to understand them.
"""
OTHERS_KINDS = ("clusterpolicies.nvidia.com", "workloads.kueue.x-k8s.io", "endpointslices")
"""Of other projects, or not simulated."""
MISUSE = ("unknown flag", "unknown shorthand", "unknown command", "usage", "see 'kubectl",
          "required flag", "invalid argument", "error: you must", "cannot be")  # fmt: skip


def fill(hosted: HostedServer) -> None:
    load_fleet(hosted)
    run = hosted.server.client
    base = [one for file in sorted((REPOSITORY / "daemonset" / "base").glob("*.yaml"))
            for one in read_manifests(file) if one["kind"] in {"ConfigMap", "Deployment",
                                                               "DaemonSet"}]  # fmt: skip
    hosted.run(post_manifests(run, base, namespace="gpuward"))
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "gpuward-remediator", "namespace": "gpuward"},
        "spec": {},
    }
    load(hosted, r.LEASES, lease)
    rack = {"metadata": {"name": "rack", "labels": {"gpuward.io/nvlink-domain": "DOMAIN"}}}
    load(hosted, r.NODES, {"apiVersion": "v1", "kind": "Node", **rack})


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with cluster(tmp_path_factory.mktemp("printed"), fill) as kubectl:
        yield kubectl


WAITS = ("uninstall", "--yes")
"""It would wait for pods that nobody ends here."""


def filled(arguments: tuple[str, ...]) -> list[str]:
    return [NOT_THERE.get(part, part) for part in arguments]


@pytest.mark.parametrize("printed", OURS, ids=[one.text for one in OURS])
def test_every_printed_command_of_the_plugin_runs(
    there: Kubectl, printed: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong use is 64 and a fault of gpuward reports it; what only looks has an answer."""
    monkeypatch.chdir(tmp_path)  # some write a file
    arguments = [
        part for part in filled(printed.arguments[2:]) if (printed.arguments[2], part) != WAITS
    ]
    code, out, err = there(*arguments)
    assert code != 64, err
    assert "unexpected" not in err
    if arguments[0] in LOOKS:
        assert (code, bool(out)) == (0, True), f"{printed.where}: {err}"


def typed(there: Kubectl, printed: Printed, home: Path) -> str:
    """What went wrong when `kubectl` was given the command; "" for nothing."""
    arguments = [part for part in filled(printed.arguments[1:]) if part]
    arguments = [part for part in arguments if part != "--kubeconfig"]
    verb = next((part for part in arguments if part in WRITES | UNDERSTOOD), "")
    if verb in WRITES and "auth" not in arguments:
        arguments.append("--dry-run=server")
    done = subprocess.run(
        [str(KUBECTL), "--request-timeout=5s", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(there.kubeconfig)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
        cwd=REPOSITORY,
    )  # fmt: skip
    if done.returncode == 0 or any(kind in printed.text for kind in OTHERS_KINDS):
        return ""
    if "diff" in arguments and done.returncode == 1 and not done.stderr:
        return ""  # the manifests differ from what is there
    if verb == "taint" and "not found" in done.stderr:
        return ""  # it takes off what is not on the node here
    if "<" in printed.text and "NotFound" in done.stderr:
        return ""  # a name that only the reader has
    if verb in UNDERSTOOD and not any(part in done.stderr.lower() for part in MISUSE):
        return ""
    return f"{printed.where}: {printed.text}\n  {done.stderr.strip()[:300]}"


@pytest.mark.slow
@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
def test_every_printed_command_of_kubectl_runs(there: Kubectl, tmp_path: Path):
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda one: typed(there, one, tmp_path), PLAIN))
    assert [one for one in found if one] == []


def test_no_printed_command_looks_for_events_of_nodes_where_there_are_none():
    """Events about Nodes, which have no namespace, stand in `default`."""
    asked = [
        one for one in PLAIN if "events" in one.arguments and "involvedObject.name" in one.text
    ]
    assert [
        one.text for one in asked if "default" not in one.arguments and "-A" not in one.arguments
    ] == []
