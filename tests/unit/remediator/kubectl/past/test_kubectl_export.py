"""An export holds what a back-test needs and nothing else; a planted secret is in none."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.http.threaded import HostedServer
from remediator.backtest.files import read_archive
from remediator.cli import main
from rules.backtest.archive import ArchiveError
from tests.support.remediator.kubectl_cluster import cluster, load
from tests.support.remediator.kubectl_fleet import load_fleet
from tests.support.remediator.kubectl_objects import BLOCKED, HEALTHY, node

SECRET = "hunter2-do-not-leak"


def with_secrets(hosted: HostedServer) -> None:
    """Wherever people keep secrets: Secrets, config maps, environment, arguments, annotations."""
    load_fleet(hosted)
    meta = {"name": "team", "namespace": "serving"}
    load(hosted, r.CONFIGMAPS, {"metadata": meta, "data": {"token": SECRET}})
    load(hosted, r.NODES, node("gpu-secret", annotations={"vendor.io/token": SECRET},
                               labels={"vendor.io/password": SECRET}))  # fmt: skip
    container: dict[str, Any] = {
        "name": "main", "image": f"registry/{SECRET}", "args": [SECRET], "command": [SECRET],
        "env": [{"name": "TOKEN", "value": SECRET}],
        "resources": {"limits": {"nvidia.com/gpu": "2"}},
    }  # fmt: skip
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "train",
        "uid": "u",
        "controller": True,
    }
    pod = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "train-0", "namespace": "serving", "annotations": {"a": SECRET},
                     "labels": {"token": SECRET}, "ownerReferences": [owner]},
        "spec": {"nodeName": HEALTHY, "containers": [container], "initContainers": [container],
                 "volumes": [{"name": "v", "secret": {"secretName": SECRET}}]},
        "status": {"phase": "Running"},
    }  # fmt: skip
    load(hosted, r.PODS, pod)


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("export")
    plain, hidden = folder / "plain.tar.gz", folder / "hidden.tar.gz"
    with cluster(folder, with_secrets) as kubectl:
        code, out, err = kubectl("export", "-f", str(plain))
        assert (code, err) == (0, "")
        assert "14 nodes" in out
        assert kubectl("export", "--anonymise", "-f", str(hidden))[0] == 0
        again = folder / "again.tar.gz"
        kubectl("export", "--anonymise", "-f", str(again))
        assert read_archive(again).nodes == read_archive(hidden).nodes, "stable names"
    return plain, hidden


def text_of(path: Path) -> str:
    with tarfile.open(path) as tar:
        files = [tar.extractfile(member) for member in tar]
        return "\n".join(file.read().decode() for file in files if file is not None)


def test_issue14_no_secret_is_in_an_export(exports: tuple[Path, Path]) -> None:
    for path in exports:
        assert SECRET not in text_of(path)


def test_issue14_what_a_back_test_needs_is_there(exports: tuple[Path, Path]) -> None:
    archive = read_archive(exports[0])
    (train,) = [pod for pod in archive.pods if pod.name == "train-0"]
    assert (train.owner_kind, train.owner, train.gpus, train.node) == ("Job", "train", 2, HEALTHY)
    assert {node.name for node in archive.nodes} >= {HEALTHY, BLOCKED, "gpu-secret"}
    assert archive.sessions
    assert archive.healths
    assert archive.records
    (blocked,) = [pod for pod in archive.pods if pod.node == BLOCKED and pod.pdbs]
    assert blocked.pdbs[0].startswith("serving/")


def test_issue14_an_anonymised_export_names_nothing(exports: tuple[Path, Path]) -> None:
    plain, hidden = map(read_archive, exports)
    text = text_of(exports[1])
    named = {one.name for one in plain.nodes} | {one.name for one in plain.pods}
    named |= {one.name for one in plain.sessions} | {one.name for one in plain.records}
    people = {"ann", "vendor comes on Monday", "fire drill", "tritonserver", "1650000000001"}
    assert [name for name in sorted(named | people) if f'"{name}"' in text] == []
    assert len(hidden.sessions) == len(plain.sessions)
    assert {s.spec["nodeName"] for s in hidden.sessions} & {n.name for n in hidden.nodes}
    assert hidden.meta.anonymised


def test_issue14_without_the_clusters_uid_names_are_random_and_it_says_so(
    tmp_path: Path,
) -> None:
    """A constant key would let anybody compute the digest of a name that they guess."""

    def without_uid(hosted: HostedServer) -> None:
        load(hosted, r.NODES, node("gpu-1"))
        failed = ApiError(403, "Forbidden", "namespaces is forbidden")
        hosted.server.faults.fail(failed, path=".*/namespaces/kube-system", times=None)

    found = []
    with cluster(tmp_path, without_uid) as kubectl:
        for index in range(2):
            file = tmp_path / f"{index}.tar.gz"
            code, _, err = kubectl("export", "--anonymise", "-f", str(file))
            assert code == 0
            assert "will not agree" in err
            found.append(read_archive(file).nodes)
    assert len(found[0]) == len(found[1]) == 1
    assert found[0] != found[1]


def test_issue14_the_back_test_reads_either(
    exports: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "enforce.yaml"
    policy.write_text("mode: Enforce\n")
    for path in exports:
        assert main(["backtest", "--records", str(path), "--policy", str(policy)]) == 0
        text = capsys.readouterr().out
        assert "enforce.yaml (Enforce):" in text
        assert "What the records cannot tell:" in text
    unpacked = tmp_path / "unpacked"
    with tarfile.open(exports[0]) as tar:
        tar.extractall(unpacked, filter="data")
    command = ["backtest", "--records", str(unpacked), "--policy", str(policy), "--json"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["policy"] for one in found["policies"]] == ["what really was", "enforce.yaml"]
    assert found["cannotTell"]


def _half(path: Path) -> None:
    _tar(path, {"meta.json": b"{}", "sessions.json": SECRET.encode() * 999})
    path.write_bytes(path.read_bytes()[:60])


def _flipped(path: Path) -> None:
    _tar(path, {"meta.json": b"{}", "sessions.json": SECRET.encode() * 999})
    packed = path.read_bytes()
    path.write_bytes(packed[:20] + bytes(255 - byte for byte in packed[20:60]) + packed[60:])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(lambda p: None, "cannot be read", id="nothing"),
        pytest.param(lambda p: p.write_bytes(b"no tar"), "it is no archive; name", id="no tar"),
        pytest.param(_half, "it is damaged or cut off", id="half of one"),
        pytest.param(_flipped, "it is damaged or cut off", id="with wrong bytes"),
        pytest.param(lambda p: _tar(p, {"x.json": b"{}"}), "no meta.json", id="another tar"),
        pytest.param(
            lambda p: _tar(p, {"meta.json": b"{}", "sessions.json": b"[{]"}),
            "sessions.json cannot be read", id="torn",
        ),
        pytest.param(
            lambda p: _tar(p, {"meta.json": b'{"format": 9}', "sessions.json": b"[]"}),
            "its format is 9", id="of another time",
        ),
    ],
)  # fmt: skip
def test_issue14_what_is_no_export_is_said_in_one_sentence(
    make: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "export.tar.gz"
    make(path)
    with pytest.raises(ArchiveError, match=said):
        read_archive(path)
    assert main(["backtest", "--records", str(path)]) == 64
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def _tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, body in files.items():
            member = tarfile.TarInfo(f"../../etc/{name}")
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
