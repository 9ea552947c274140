"""`kubectl gpuward evidence`: files for the vendor, the digest checked, nothing overwritten."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster.server import HostedServer
from rules.api.evidence import digest
from tests.support.remediator.kubectl_cluster import cluster, load
from tests.support.remediator.kubectl_objects import EVIDENCE as NAME
from tests.support.remediator.kubectl_objects import EVIDENCES, QUARANTINES, kept, session


def holding(*objects: dict[str, Any], recorded: str = "") -> Callable[[HostedServer], None]:
    def fill(hosted: HostedServer) -> None:
        load(hosted, EVIDENCES, *objects)
        if recorded:
            session = {
                "apiVersion": "gpuward.io/v1alpha1",
                "kind": "GPUQuarantine",
                "metadata": {"name": NAME},
                "spec": {"nodeName": "gpu-7", "causes": [{"reason": "R"}]},
                "status": {"phase": "Released", "evidence": {"gpuEvidence": {"sha256": recorded}}},
            }
            load(hosted, QUARANTINES, session)

    return fill


def test_it_writes_what_a_vendor_asks_for(tmp_path: Path) -> None:
    folder = tmp_path / "rma"
    with cluster(tmp_path, holding(kept(), recorded=kept()["spec"]["sha256"])) as kubectl:
        code, out, err = kubectl("evidence", NAME, "-o", str(folder))
    assert (code, err) == (0, "")
    assert "at fault: NVIDIA H100 80GB HBM3 serial 1650522003820 in slot 0000:4e:00.0" in out
    assert "nvidia-bug-report.sh" in out
    names = {each.name for each in folder.iterdir()}
    assert names == {"summary.txt", "kernel.log", "evidence.json", "SHA256SUMS"}
    assert "InfoROM not known" in (folder / "summary.txt").read_text()
    assert (folder / "kernel.log").read_text() == "NVRM: first\nNVRM: last\n"
    assert "\\x1b[2J" in (folder / "summary.txt").read_text()
    written = json.loads((folder / "evidence.json").read_text())
    assert written.pop("sha256") == digest(written)
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        sha256, _, name = line.partition("  ")
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sha256


def test_of_a_node_the_newest_also_when_the_node_is_gone(tmp_path: Path) -> None:
    older = kept("gpu-7-older", takenAt="2026-03-01T11:00:00Z")
    with cluster(tmp_path, holding(older, kept())) as kubectl:
        code, out, err = kubectl("evidence", "gpu-7", "-o", str(tmp_path / "rma"))
    assert (code, err) == (0, "")
    assert f"session {NAME}" in out


@pytest.mark.parametrize(
    ("there", "recorded", "why"),
    [
        (kept(sha256="0" * 64), "", "does not match its own SHA-256"),
        (kept(), "1" * 64, "is not the one on record of its session"),
    ],
)
def test_what_was_changed_is_refused_and_nothing_is_written(
    tmp_path: Path, there: dict[str, Any], recorded: str, why: str
) -> None:
    folder = tmp_path / "rma"
    with cluster(tmp_path, holding(there, recorded=recorded)) as kubectl:
        code, out, err = kubectl("evidence", NAME, "-o", str(folder))
    assert (code, out) == (1, "")
    assert why in err
    assert not folder.exists()


def test_a_missing_node_is_reported(tmp_path: Path) -> None:
    with cluster(tmp_path, holding()) as kubectl:
        code, _, err = kubectl("evidence", "gpu-9")
    assert code == 1
    assert "node gpu-9 not found; list the nodes with kubectl get nodes" in err


def test_evidence_of_an_earlier_session_is_named_as_such(tmp_path: Path) -> None:
    def fill(hosted: HostedServer) -> None:
        load(hosted, EVIDENCES, kept())
        load(hosted, QUARANTINES, session("gpu-7-new", "gpu-7", "Pending", ""))

    with cluster(tmp_path, fill) as kubectl:
        code, out, _ = kubectl("evidence", "gpu-7", "-o", str(tmp_path / "rma"))
        assert code == 0
        assert "of an earlier session: none was kept for session" in out
        again = kubectl("evidence", NAME, "-o", str(tmp_path / "again"))[1]
        assert "of an earlier session" not in again, "that one was asked for"


def test_what_an_agent_wrote_begins_no_line_of_the_answer(tmp_path: Path) -> None:
    forged = {
        "uuid": "GPU-7",
        "product": "H100\nSHA-256 0000, checked",
        "serial": "1\nmissing: all",
    }
    with cluster(tmp_path, holding(kept(gpus=[forged]))) as kubectl:
        code, out, _ = kubectl("evidence", NAME, "-o", str(tmp_path / "rma"))
    assert code == 0
    assert "at fault: H100\\x0aSHA-256 0000" in out
    assert len([line for line in out.splitlines() if line.startswith("SHA-256")]) == 1
