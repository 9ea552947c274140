"""`reset-gpu`: refused while a process has the GPU open, never interrupted (issue 13)."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.commands.repair import MAX_BYTES, Outcome, RepairResult, for_kubernetes
from tests.support.agent.fake_host import UUIDS, FakeHost


@pytest.fixture
def fake(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def test_gpus_that_no_process_has_open_are_reset_together(fake: FakeHost) -> None:
    fake.process(300, "containerd", "/dev/null", "/dev/nvidiactl")
    fake.process(301, "python", "/dev/nvidia3")
    result = fake.reset(UUIDS[:2]).run()
    assert result.outcome is Outcome.DONE, result.message
    assert "successfully reset" in result.message
    assert fake.ran() == [f"--gpu-reset -i {UUIDS[0]},{UUIDS[1]}"]


def test_the_driver_of_a_container_comes_before_the_hosts(fake: FakeHost) -> None:
    fake.give_driver("run/nvidia/driver/usr/bin/nvidia-smi")
    (fake.root / "usr/bin/nvidia-smi").unlink()
    assert fake.reset(UUIDS[:1]).run().outcome is Outcome.DONE
    (fake.root / "run/nvidia/driver/usr/bin/nvidia-smi").unlink()
    result = fake.reset(UUIDS[:1]).run()
    assert result.outcome is Outcome.REFUSED
    assert "/run/nvidia/driver/usr/bin/nvidia-smi and /usr/bin/nvidia-smi" in result.message


def test_a_process_with_the_gpu_open_is_named_and_nothing_is_reset(fake: FakeHost) -> None:
    fake.process(300, "dcgm-exporter", "/dev/nvidia0", "/dev/nvidia1")
    fake.process(301, "gpuward-nvml", "/dev/nvidia1 (deleted)")
    result = fake.reset(UUIDS[1:2], wait_s=0.01).run()
    assert result.outcome is Outcome.REFUSED
    assert "dcgm-exporter (process 300), gpuward-nvml (process 301) have a GPU open" in (
        result.message
    )
    assert fake.ran() == []


PLACE = "driver/nvidia/gpus/0000:00:00.0/information"
REFUSALS: dict[str, Callable[[FakeHost], object]] = {
    "the node selector nvidia.com/gpu.deploy.dra-driver=true": lambda fake: fake.process(
        300, "gpu-kubelet-plu", "/dev/nvidia0"
    ),
    "nv-hostengine (process 300) has a GPU open": lambda fake: fake.process(
        300, "nv-hostengine", "/run/nvidia/driver/dev/nvidia0"
    ),
    "nvidia-persiste (process 701)": lambda fake: fake.process(
        701, "nvidia-persistenced"[:15], "/dev/nvidia0"
    ),
    "partitioned (MIG)": lambda fake: fake.list_gpus(mig="Enabled"),
    "the device file of": lambda fake: (fake.proc / PLACE).write_text("Model: X\n"),
    "does not list GPU": lambda fake: fake.gpus.write_text(""),
    "lists a GPU as": lambda fake: fake.gpus.write_text("Unable to determine: GPU is lost.\n"),
    "not visible": lambda fake: (fake.proc / "2/stat").unlink(),
}


@pytest.mark.parametrize("message", REFUSALS)
def test_a_refused_reset_names_the_reason_and_resets_nothing(fake: FakeHost, message: str) -> None:
    REFUSALS[message](fake)
    result = fake.reset(UUIDS[:1]).run()
    assert result.outcome is Outcome.REFUSED
    assert message in result.message
    assert fake.ran() == []


def test_files_that_the_other_threads_still_have_open_count(fake: FakeHost) -> None:
    fake.process(300, "python")
    (fake.proc / "300/task/300/fd").mkdir(parents=True)
    (fake.proc / "300/task/301/fd").mkdir(parents=True)
    (fake.proc / "300/task/301/fd/4").symlink_to("/dev/nvidia0")
    assert fake.reset(UUIDS[:1]).run().outcome is Outcome.REFUSED


@pytest.mark.parametrize("call", ["listdir", "readlink"])
def test_a_process_with_unreadable_files_may_have_the_gpu_open(
    fake: FakeHost, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    fake.process(300, "hidden", "/dev/null")
    known = getattr(os, call)

    def closed(path: str | Path) -> object:
        if f"{path}".startswith(f"{fake.proc}/300/fd"):
            raise PermissionError(13, "Permission denied")
        return known(path)

    monkeypatch.setattr(os, call, closed)
    result = fake.reset(UUIDS[:1]).run()
    assert result.outcome is Outcome.REFUSED
    assert "the open files of hidden (process 300) cannot be read" in result.message
    assert fake.ran() == []


def test_a_process_that_is_ending_is_waited_for(fake: FakeHost) -> None:
    fake.process(300, "dcgm-exporter", "/dev/nvidia0")
    reset = fake.reset(UUIDS[:1], wait_s=30)
    leaving = threading.Timer(0.05, (fake.proc / "300/fd/9").unlink)
    leaving.start()
    assert reset.run().outcome is Outcome.DONE
    leaving.join()


def test_a_stop_while_waiting_resets_nothing(fake: FakeHost) -> None:
    fake.process(300, "dcgm-exporter", "/dev/nvidia0")
    reset = fake.reset(UUIDS[:1], wait_s=30)
    reset.stop.set()
    assert reset.run().outcome is Outcome.REFUSED
    assert fake.ran() == []


@pytest.mark.parametrize("status", ["0", "3"])
def test_persistence_mode_is_off_for_the_reset_and_on_after_it(
    fake: FakeHost, status: str
) -> None:
    fake.list_gpus(persistence="Enabled")
    fake.process(700, "nvidia-persistenced"[:15], "/dev/nvidia0")
    fake.status.write_text(status)
    result = fake.reset(UUIDS[:1]).run()
    assert result.outcome is (Outcome.DONE if status == "0" else Outcome.FAILED)
    assert fake.ran() == [
        f"-pm 0 -i {UUIDS[0]}", f"--gpu-reset -i {UUIDS[0]}", f"-pm 1 -i {UUIDS[0]}"
    ]  # fmt: skip


def test_the_output_of_a_failed_nvidia_smi_is_shown(fake: FakeHost) -> None:
    fake.status.write_text("255")
    fake.output.write_text("The following GPUs must be reset together: 0, 1\n")
    result = fake.reset(UUIDS[:1]).run()
    assert result.outcome is Outcome.FAILED
    assert "must be reset together" in result.message


def test_a_node_that_has_booted_since_needs_no_reset(fake: FakeHost) -> None:
    assert fake.reset(UUIDS[:1], boot_id="another").run().outcome is Outcome.NEEDLESS
    assert fake.log.read_text() == ""


def test_gpus_behind_old_switches_are_reset_all_or_not_at_all(fake: FakeHost) -> None:
    fake.list_gpus(capability="8.0")
    (fake.root / "dev/nvidia-nvswitch0").touch()
    result = fake.reset(UUIDS[:1]).run()
    assert result.outcome is Outcome.REFUSED
    assert "1 of 4 GPUs behind NVSwitches" in result.message
    assert fake.reset(UUIDS).run().outcome is Outcome.DONE


def test_kubernetes_gets_no_more_than_it_keeps() -> None:
    result = RepairResult(outcome=Outcome.FAILED, message="\n" * 5000, gpus=("GPU-x" * 8,) * 32)
    assert len(for_kubernetes(result)) <= MAX_BYTES
