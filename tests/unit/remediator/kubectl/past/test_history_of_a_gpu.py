"""`history` of a GPU by what is printed on it or what the driver calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.sim.cluster.http.threaded import HostedServer
from hack.sim.cluster.resource import NODES
from tests.support.remediator.kubectl_cluster import cluster, load
from tests.support.remediator.kubectl_objects import HEALTHS, Object, ago, node, verdict
from tests.support.remediator.record_objects import RECORDS

OLD, NEW, LIKE = "GPU-aaaa1111-0", "GPU-bbbb2222-0", "GPU-bbbb3333-0"
OLD_SERIAL, NEW_SERIAL, LIKE_SERIAL = "1654000001", "1654000002", "1655000003"


def replaced() -> Object:
    """The record of a GPU that failed and in whose place another one came."""
    event = {
        "at": ago(900), "lastAt": ago(900), "times": 1, "node": "gpu-7", "severity": "Fatal",
        "reason": "RowRemapFailure", "outcome": "Released", "endedAt": ago(600),
        "session": "gpu-7-5e55", "steps": ["ResetGPU", "GPUReplaced"],
    }  # fmt: skip
    out = {
        "at": ago(700), "node": "gpu-7", "slot": "0000:3b:00.0", "uuid": NEW,
        "serial": NEW_SERIAL, "session": "gpu-7-5e55", "step": "RestartNode",
    }  # fmt: skip
    status = {
        "scope": "GPU", "uuid": OLD, "serial": OLD_SERIAL, "events": [event],
        "counters": {"faults": 1}, "replaced": out,
        "places": [{"node": "gpu-7", "slot": "0000:3b:00.0", "since": ago(9000)}],
    }  # fmt: skip
    metadata = {"name": OLD.lower()}
    return {"apiVersion": "gpuward.io/v1alpha1", "kind": "GPURecord", "metadata": metadata,
            "status": status}  # fmt: skip


def history(folder: Path, *typed: str, moved: bool = False) -> tuple[int, str, str]:
    def fill(hosted: HostedServer) -> None:
        load(hosted, NODES, node("gpu-7"), node("gpu-8"))
        load(hosted, RECORDS, replaced())
        other = (OLD, OLD_SERIAL) if moved else (LIKE, LIKE_SERIAL)
        for name, uuid, serial in (("gpu-7", NEW, NEW_SERIAL), ("gpu-8", *other)):
            gpu = {"uuid": uuid, "serial": serial, "pci": "0000:3b:00.0", "product": "H100"}
            load(hosted, HEALTHS, verdict(name, gpus=[gpu]))

    with cluster(folder, fill) as kubectl:
        code, out, err = kubectl("history", *typed)
        return code, " ".join(out.split()), " ".join(err.split())


@pytest.mark.parametrize("gpu", [(), ("gpu",)], ids=["plain", "gpu"])
@pytest.mark.parametrize("typed", [OLD, OLD.lower(), "aaaa1111", "GPU-aaaa", OLD_SERIAL])
def test_a_gpu_is_found_by_uuid_and_serial_number_or_how_they_begin(
    tmp_path: Path, gpu: tuple[str, ...], typed: str
) -> None:
    code, out, err = history(tmp_path, *gpu, typed)
    assert (code, err) == (0, "")
    assert "RowRemapFailure" in out
    assert f"replaced by serial {NEW_SERIAL} ({NEW}) in gpu-7 0000:3b:00.0 on " in out
    assert ", during RestartNode, session gpu-7-5e55" in out


@pytest.mark.parametrize("typed", [NEW, NEW_SERIAL])
def test_a_gpu_that_never_failed_is_found_too_and_whom_it_came_for(
    tmp_path: Path, typed: str
) -> None:
    code, out, err = history(tmp_path, typed)
    assert (code, err) == (0, "")
    assert "nothing is on record of it; it never failed" in out
    assert f"came in for serial {OLD_SERIAL} ({OLD}) in gpu-7 0000:3b:00.0 on " in out


def test_of_gpus_of_one_board_with_one_serial_number_the_uuid_is_asked_for(tmp_path: Path) -> None:
    def fill(hosted: HostedServer) -> None:
        pair = [{"uuid": uuid, "serial": NEW_SERIAL} for uuid in (NEW, LIKE)]
        load(hosted, NODES, node("gpu-7"))
        load(hosted, HEALTHS, verdict("gpu-7", gpus=pair))

    with cluster(tmp_path, fill) as kubectl:
        code, out, err = kubectl("history", NEW_SERIAL)
    assert (code, out) == (1, "")
    said = " ".join(err.split())
    assert f"2 GPUs have the serial number {NEW_SERIAL}: {NEW} " in said
    assert said.endswith("; give the UUID of the one you mean")


@pytest.mark.parametrize("typed", ["1654", "gpu-bbbb"])
def test_what_names_several_is_answered_with_all_of_them(tmp_path: Path, typed: str) -> None:
    code, out, err = history(tmp_path, typed)
    assert (code, out) == (1, "")
    assert f"2 GPUs begin with {typed}: " in err
    assert f"{NEW} (serial {NEW_SERIAL}, in gpu-7)" in err


def test_what_names_none_is_said(tmp_path: Path) -> None:
    code, _, err = history(tmp_path, "999999")
    assert code == 1
    assert "no node 999999, and no session of one, and no GPU whose UUID or serial" in err
    code, _, err = history(tmp_path, "gpu", "999999")
    assert code == 1
    assert "there is no GPU called 999999: no UUID or serial number of one begins so" in err


def test_a_node_comes_before_a_gpu_and_a_slip_of_a_nodes_name_is_no_gpu(tmp_path: Path) -> None:
    code, out, _ = history(tmp_path, "gpu-8")
    assert (code, out) == (0, "gpu-8 has no session on record")
    code, _, err = history(tmp_path, "gpu-9")
    assert code == 1
    assert "did you mean gpu-" in err


@pytest.mark.parametrize("moved", [False, True])
def test_a_gpu_that_turned_up_in_another_node_is_said_to_be_there(
    tmp_path: Path, moved: bool
) -> None:
    """It has not failed there, so its record still names the node of before."""
    _, out, _ = history(tmp_path, OLD_SERIAL, moved=moved)
    assert "where gpu-7 0000:3b:00.0 since" in out
    assert ("now in gpu-8 0000:3b:00.0, by the verdict there" in out) == moved
