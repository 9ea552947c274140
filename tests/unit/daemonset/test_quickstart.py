"""The quickstart on kind renders, and only it has simulated GPUs."""

import subprocess

import pytest

from tests.support.cluster.manifest_builds import DAEMONSET, REPOSITORY, build, one


def test_the_quickstart_runs_the_agent_on_simulated_gpus() -> None:
    objects = build(root="hack/quickstart")
    spec = one(objects, "DaemonSet", "gpuward-agent")["spec"]["template"]["spec"]
    (agent,) = spec["containers"]
    (description,) = [e["value"] for e in agent["env"] if e["name"] == "GPUWARD_NVML"]
    copied = description.removeprefix("sim:/simulator/")

    assert agent["image"] == "gpuward-agent-simulated:0.1.0"
    assert description != copied
    assert (REPOSITORY / copied).is_file()


@pytest.mark.parametrize("text", ["sim:", "simulator", "quickstart"])
def test_nothing_that_is_installed_refers_to_simulated_gpus(text: str) -> None:
    found = subprocess.run(
        ["git", "grep", "-l", text, "--", str(DAEMONSET)], cwd=REPOSITORY, capture_output=True
    )

    assert found.stdout == b""


def test_the_fault_script_names_its_arguments() -> None:
    script = str(REPOSITORY / "hack" / "quickstart" / "fault")
    ended = subprocess.run([script], capture_output=True, text=True)

    assert (ended.returncode, ended.stderr) == (64, "usage: hack/quickstart/fault NODE [XID]\n")
