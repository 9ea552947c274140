"""`kubectl gpuward bundle`: everything support asks for is in it, and nothing that is secret."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.http.threaded import HostedServer
from remediator.kubectl.bundle import redaction
from tests.support.remediator.kubectl_cluster import cluster, load
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import BLOCKED

SECRET = "hunter2-hunter2"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "w-1", "namespace": "default",
                 "annotations": {"example.com/key": SECRET}},
    "spec": {
        "nodeName": BLOCKED,
        "containers": [
            {
                "name": "main", "image": "w:1", "command": ["w", f"--password={SECRET}"],
                "env": [{"name": "PASSWORD", "value": SECRET}],
            }
        ],
        "volumes": [{"name": "s", "secret": {"secretName": "s"}}],
    },
    "status": {"phase": "Running"},
}  # fmt: skip


def fill(hosted: HostedServer) -> None:
    load_fleet(hosted)
    load(hosted, r.PODS, POD)
    secret = {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"},
        "stringData": {"password": SECRET},
    }  # fmt: skip
    kind = r.Resource("", "v1", "secrets", True, "Secret")
    load(hosted, kind, secret)


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {
            member.name.partition("/")[2]: archive.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in archive.getmembers()
        }


def test_issue15_08_a_bundle_holds_what_support_asks_for_and_no_secret(tmp_path):
    path = tmp_path / "b.tar.gz"
    with cluster(tmp_path, fill) as kubectl:
        code, out, err = kubectl("bundle", BLOCKED, "--to", str(path))
        asked = [one.resource for one in kubectl.hosted.server.requests.all]
    assert code == 0, err
    assert out.startswith(f"{path}: ")
    found = contents(path)
    assert set(found) >= {
        *("why.txt", "node.yaml", "health.yaml", "sessions.yaml", "pods.yaml", "budgets.yaml"),
        *("pauses.yaml", "events-node.yaml", "events-gpuward.yaml", "version.yaml"),
    }
    assert f"{BLOCKED}-0badcafe" in found["sessions.yaml"]
    assert "NVRM: Xid" in found["why.txt"]
    assert "solo" in found["budgets.yaml"]
    assert "w-1" in found["pods.yaml"]
    assert [name for name, text in found.items() if SECRET in text] == []
    assert "secrets" not in asked
    assert path.stat().st_mode & 0o077 == 0


def test_issue15_08_what_is_not_there_is_named_and_the_rest_is_collected(tmp_path):
    path = tmp_path / "b.tar.gz"
    with cluster(tmp_path, load_fleet) as kubectl:
        code, out, _ = kubectl("bundle", "gpu-no-agent", "--to", str(path))
    assert (code, "missing, see missing.txt" in out) == (0, True)
    found = contents(path)
    assert "health.yaml: there is none" in found["missing.txt"]
    assert "policy.yaml: there is none" in found["missing.txt"]
    assert "node.yaml" in found


def test_issue15_08_a_folder_that_cannot_be_written_is_said(tmp_path):
    with cluster(tmp_path, load_fleet) as kubectl:
        code, out, err = kubectl("bundle", BLOCKED, "--to", str(tmp_path / "no" / "b.tar.gz"))
    assert (code, out) == (1, "")
    assert "cannot be written" in err


@pytest.mark.parametrize(
    "line",
    [
        f"Authorization: Bearer {SECRET}",
        f'{{"token": "{SECRET}"}}',
        f"api_key={SECRET} rest",
        f"https://joe:{SECRET}@registry.example.com/x",
        "sent eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJodW50ZXIyIn0.c2lnbmF0dXJl on",
    ],
)
def test_issue15_08_what_looks_like_a_credential_is_left_out_of_logs(line):
    kept = redaction.text(line)
    assert SECRET not in kept
    assert "eyJzdWIi" not in kept
    assert redaction.LEFT_OUT in kept


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:9d:00): 95, pid=7731, name=tritonserver, Uncontained ECC error",
        '{"event": "marked", "node": "gpu-7", "session": "gpu-7-0badcafe"}',
    ],
)
def test_issue15_08_evidence_stays_as_it_is(line):
    assert redaction.text(line) == line


def test_issue15_08_of_foreign_annotations_only_the_keys_are_kept():
    notes: dict[str, Any] = {"gpuward.io/hold": "why", "kubeadm.alpha/x": SECRET}
    kept = redaction.metadata({"name": "n", "annotations": notes, "managedFields": [1]})
    assert kept == {
        "name": "n",
        "annotations": {"gpuward.io/hold": "why", "kubeadm.alpha/x": redaction.LEFT_OUT},
    }


def test_issue15_walk_a_node_that_nobody_knows_gets_no_archive(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with cluster(tmp_path, load_fleet) as kubectl:
        code, out, err = kubectl("bundle", "gpu-blockd")
    assert (code, out) == (1, "")
    assert f"there is no node gpu-blockd; did you mean {BLOCKED}?" in err
    assert not list(tmp_path.glob("*.tar.gz"))


def test_issue15_walk_a_server_that_is_away_gets_no_archive(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with cluster(tmp_path, load_fleet) as kubectl:
        away = kubectl
    code, out, err = away("bundle", BLOCKED)
    assert (code, out) == (1, "")
    assert "no answer from the API server" in err
    assert not list(tmp_path.glob("*.tar.gz"))
