"""The pod of a process, from the text of its cgroups as kubelets and runtimes spell it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.senses.host import sees_host_processes
from agent.senses.workloads import pod_in, pod_of_process

UID = "0a1b2c3d-1111-2222-3333-444455556666"
OTHER = "ffffffff-1111-2222-3333-444455556666"
STATIC = "0123456789abcdef0123456789abcdef"
UNDER = UID.replace("-", "_")
ID = "4f" * 32

V1 = "\n".join(
    f"{number}:{name}:/kubepods/burstable/pod{UID}/{ID}"
    for number, name in enumerate(["name=systemd", "memory", "cpu,cpuacct", "devices"], start=1)
)


BEST_EFFORT = f"kubepods-besteffort-pod{UNDER}.slice"
BURSTABLE = "kubepods-burstable.slice/kubepods-burstable"
KUBELET = "kubelet.slice/kubelet-kubepods.slice"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            f"0::/kubepods.slice/kubepods-besteffort.slice/{BEST_EFFORT}/cri-containerd-{ID}.scope",
            UID, id="v2 systemd, best effort"),
        pytest.param(f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/crio-{ID}.scope", UID,
                     id="v2 systemd, guaranteed, CRI-O"),
        pytest.param(f"0::/kubepods.slice/{BURSTABLE}-pod{UNDER}.slice/crio-{ID}.scope/container",
                     UID, id="v2 CRI-O with its own level"),
        pytest.param(f"0::/kubepods/burstable/pod{UID}/{ID}", UID, id="v2 cgroupfs"),
        pytest.param(f"0::/kubepods/pod{UID}/{ID}", UID, id="v2 cgroupfs, guaranteed"),
        pytest.param(V1, UID, id="v1 cgroupfs"),
        pytest.param(f"{V1}\n0::/system.slice/containerd.service", UID, id="hybrid"),
        pytest.param(f"11:pids:/kubepods.slice/kubepods-pod{UNDER}.slice/docker-{ID}.scope\n1:cpu:/",
                     UID, id="v1 systemd, one controller at the root"),
        pytest.param(f"0::/system.slice/containerd.service/{BEST_EFFORT}:cri-containerd:{ID}", UID,
                     id="containerd with the other driver"),
        pytest.param(
            f"0::/{KUBELET}/kubelet-kubepods-burstable.slice/"
            f"kubelet-kubepods-burstable-pod{UNDER}.slice/cri-containerd-{ID}.scope",
            UID, id="kind"),
        pytest.param(f"0::/docker/{ID}/kubelet/kubepods/besteffort/pod{UID}/{ID}", UID,
                     id="kind, cgroupfs"),
        pytest.param(f"0::/../../kubepods-burstable-pod{UNDER}.slice/cri-containerd-{ID}.scope",
                     UID, id="seen from another cgroup namespace"),
        pytest.param(f"0::/../../../besteffort/pod{UID}/{ID}", UID,
                     id="seen from another one, cgroupfs"),
        pytest.param(f"0::/../../pod{UID}/{ID}", UID, id="seen from a neighbour, cgroupfs"),
        pytest.param(f"0::/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{ID}.scope",
                     STATIC, id="static pod"),
        pytest.param(f"0::/kubepods/burstable/pod{UID}/{ID} (deleted)", UID, id="cgroup is gone"),
        pytest.param(f"0::/kubepods/burstable/pod{UID}/{ID}/kubepods/pod{OTHER}/x", UID,
                     id="a name given inside the pod"),
        pytest.param(f"2:cpu:/kubepods/pod{UID}/{ID}\n" f"1:pids:/kubepods/pod{OTHER}/{ID}", "",
                     id="two pods"),
        pytest.param("0::/", "", id="our own"),
        pytest.param("0::/user.slice/user-1000.slice/session-2.scope", "", id="no pod"),
        pytest.param("0::/kubepods.slice/kubepods-burstable.slice", "", id="above the pods"),
        pytest.param(f"0::/kubepods/burstable/xpod{UID}/{ID}", "", id="another name"),
        pytest.param(f"0::/kubepods/burstable/pod{UID}0/{ID}", "", id="longer than a UID"),
        pytest.param("0::/kubepods/burstable/pod/x", "", id="no UID"),
        pytest.param("", "", id="empty"),
    ],
)  # fmt: skip
def test_spellings(text: str, expected: str) -> None:
    assert pod_in(text.encode()) == expected
    assert pod_in(f"{text}\n".encode()) == expected


@given(st.binary(max_size=2000))
def test_any_bytes_are_survived(text: bytes) -> None:
    uid = pod_in(text)
    assert uid == "" or set(uid) <= set("0123456789abcdef-")


@given(st.text(st.sampled_from("/-:._0af p\n"), max_size=60), st.integers(1, 3))
def test_nothing_after_the_pod_changes_it(tail: str, lines: int) -> None:
    line = f"0::/kubepods/pod{UID}/x{tail.replace(chr(10), '/')}"
    assert pod_in("\n".join([line] * lines).encode()) == UID


def process(folder: Path, pid: int, *, cgroup: bytes | None, ticks: int = 0) -> Path:
    """A folder like /proc, booted at 1,000 s, with one process."""
    own = folder / str(pid)
    own.mkdir(parents=True)
    (folder / "stat").write_text("cpu 1 2\nbtime 1000\nprocesses 9\n")
    fields = " ".join(["S"] + ["0"] * 18 + [str(ticks)] + ["0"] * 30)
    (own / "stat").write_text(f"{pid} (odd) name (x) {fields}\n")
    if cgroup is not None:
        (own / "cgroup").write_bytes(cgroup)
    return folder


HERS = f"0::/kubepods/burstable/pod{UID}/{ID}\n".encode()
HERTZ = os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("at", "expected"),
    [(1500, UID), (1100, UID), (1099, UID), (1090, ""), (0, "")],
)
def test_a_process_that_began_after_the_line_is_another(
    tmp_path: Path, at: float, expected: str
) -> None:
    proc = process(tmp_path, 7, cgroup=HERS, ticks=100 * HERTZ)
    assert pod_of_process(7, at, proc) == expected


@pytest.mark.parametrize(
    "cgroup",
    [
        pytest.param(None, id="gone"),
        pytest.param(b"", id="empty"),
        pytest.param(HERS + b"x" * 70_000, id="too long"),
    ],
)
def test_what_cannot_be_read_is_nobodys(tmp_path: Path, cgroup: bytes | None) -> None:
    assert pod_of_process(7, 9e9, process(tmp_path, 7, cgroup=cgroup)) == ""


def test_a_stat_that_is_none_is_nobodys(tmp_path: Path) -> None:
    proc = process(tmp_path, 7, cgroup=HERS)
    (proc / "7" / "stat").write_text("7 (x) S 1 2\n")
    assert pod_of_process(7, 9e9, proc) == ""
    assert pod_of_process(8, 9e9, proc) == ""


def test_a_real_process_of_no_pod_and_its_real_start() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        before = pod_of_process(child.pid, time.time())
        child.communicate(b"\n")
    assert before == ""
    assert pod_of_process(child.pid, time.time()) == ""


def test_whether_these_are_the_processes_of_the_host(tmp_path: Path) -> None:
    assert not sees_host_processes(tmp_path)
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "stat").write_text("2 (sleep) S 1 2")
    assert not sees_host_processes(tmp_path)
    (tmp_path / "2" / "stat").write_text("2 (kthreadd) S 0 0")
    assert sees_host_processes(tmp_path)
