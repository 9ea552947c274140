"""The real kubectl against the simulated cluster, through TLS and a token."""

import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.sim.cluster import resource as r
from hack.sim.cluster.controllers.nodes import node_object
from hack.sim.cluster.resource import ADMIN
from hack.sim.cluster.server import run_in_thread

KUBECTL = os.environ.get("KUBECTL") or shutil.which("kubectl")
ROOT = Path(__file__).parents[5]

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")


class Kubectl:
    """Runs kubectl with one kubeconfig."""

    def __init__(self, kubeconfig: Path, hosted):
        self._command = [str(KUBECTL), "--kubeconfig", str(kubeconfig)]
        self.hosted = hosted
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(kubeconfig.parent)}

    def run(self, *arguments, stdin=None):
        text = yaml.safe_dump(stdin) if stdin is not None else None
        return subprocess.run(
            [*self._command, *arguments],
            capture_output=True,
            text=True,
            input=text,
            timeout=60,
            env=self.environment,
            check=False,
        )

    def __call__(self, *arguments, stdin=None):
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory):
    """A server with three nodes."""
    folder = tmp_path_factory.mktemp("kubectl")
    with run_in_thread(tls=True, tokens={"secret": ADMIN}) as hosted:
        kubeconfig = hosted.server.write_kubeconfig(folder / "kubeconfig")
        now = datetime.now(UTC)
        names = ("n1", "n2", "n3")
        hosted.call(
            lambda: hosted.server.load(r.NODES, [node_object(name, now=now) for name in names])
        )
        yield Kubectl(kubeconfig, hosted)


def test_get_prints_tables_labels_and_objects(kubectl):
    lines = kubectl("get", "nodes").splitlines()
    assert lines[0].split() == ["NAME", "STATUS", "AGE"]
    assert lines[1].split()[:2] == ["n1", "Ready"]
    chosen = kubectl(
        "get", "no", "-L", "kubernetes.io/hostname", "-l", "kubernetes.io/hostname=n2"
    )
    assert chosen.splitlines()[1].split()[-1] == "n2"
    assert yaml.safe_load(kubectl("get", "node", "n1", "-o", "yaml"))["kind"] == "Node"
    columns = "custom-columns=NAME:.metadata.name,CORDON:.spec.unschedulable"
    assert kubectl("get", "nodes", "-o", columns).splitlines()[1].split() == ["n1", "<none>"]
    by_field = kubectl("get", "nodes", "--field-selector", "metadata.name=n3", "-o", "name")
    assert by_field.split() == ["node/n3"]


def test_label_annotate_taint_and_cordon(kubectl):
    kubectl("label", "node", "n1", "color=red")
    kubectl("annotate", "node", "n1", "note=it is red")
    kubectl("taint", "node", "n1", "sick=yes:NoSchedule")
    assert "already cordoned" not in kubectl("cordon", "n1")
    seen = yaml.safe_load(kubectl("get", "node", "n1", "-o", "yaml"))
    assert seen["metadata"]["labels"]["color"] == "red"
    assert seen["metadata"]["annotations"]["note"] == "it is red"
    assert {"key": "sick", "value": "yes", "effect": "NoSchedule"} in seen["spec"]["taints"]
    assert seen["spec"]["unschedulable"] is True
    writes = kubectl.hosted.server.requests.count("patch", "nodes")
    assert "already cordoned" in kubectl("cordon", "n1")
    assert kubectl.hosted.server.requests.count("patch", "nodes") == writes
    described = kubectl("describe", "node", "n1")
    assert "Unschedulable:      true" in described
    kubectl("taint", "node", "n1", "sick:NoSchedule-")
    kubectl("label", "node", "n1", "color-")
    kubectl("uncordon", "n1")
    seen = yaml.safe_load(kubectl("get", "node", "n1", "-o", "yaml"))
    assert "unschedulable" not in seen["spec"]
    assert "color" not in seen["metadata"]["labels"]


def test_custom_objects_are_created_changed_and_deleted(kubectl):
    paths = sorted((ROOT / "daemonset" / "crds").glob("gpu*.yaml"))
    definitions = [f"--filename={path}" for path in paths]
    kubectl("apply", "--validate=false", *definitions)
    kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=10s")
    quarantine: dict[str, Any] = {
        "apiVersion": "gpuward.io/v1alpha1",
        "kind": "GPUQuarantine",
        "metadata": {"name": "by-hand"},
        "spec": {"nodeName": "n1", "causes": [{"source": "Human", "message": "smoke"}]},
    }
    kubectl("create", "--validate=false", "-f", "-", stdin=quarantine)
    assert "by-hand" in kubectl("get", "gq")
    quarantine["spec"]["hold"] = True
    kubectl("apply", "--validate=false", "-f", "-", stdin=quarantine)
    held = kubectl("get", "gq", "by-hand", "-o", "jsonpath={.spec.hold}")
    assert held == "true"
    selected = kubectl("get", "gq", "--field-selector", "spec.nodeName=n1", "-o", "name")
    assert "by-hand" in selected
    patch = '{"spec":{"hold":false}}'
    kubectl("patch", "gq", "by-hand", "--type=merge", "-p", patch)
    fresh = yaml.safe_load(kubectl("get", "gq", "by-hand", "-o", "yaml"))
    kubectl("replace", "--validate=false", "-f", "-", stdin=fresh)
    assert "by-hand" in kubectl("describe", "gq", "by-hand")
    kubectl("delete", "gq", "by-hand")
    kubectl("delete", *definitions)
    assert kubectl.run("get", "gq").returncode != 0
