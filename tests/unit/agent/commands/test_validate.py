"""A node under test, from the command line to the exit status: real processes, simulated
drivers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from agent.cli import main
from hack.sim.driver import NODES, set_gpu, set_node
from hack.sim.driver.store import load
from rules.validate.contract import Result

ROOT = Path(__file__).parents[4]
DEADLINE_S = 60.0
HANG_DEADLINES_S = (8.0, DEADLINE_S)
"""Only the deadline ends a hang; the longer one where the machine is too slow for the first."""
"""A hang costs this much; a process starts in less, also beside other work."""


class Machine:
    """Three H100 behind NVSwitch, and the file that a kubelet would read."""

    def __init__(self, folder: Path) -> None:
        self.description = folder / "node.yaml"
        node = load(NODES / "h100-8-nvswitch.yaml")
        node["gpus"] = node["gpus"][:3]
        self.description.write_text(yaml.safe_dump(node))
        self.gpus = [gpu["uuid"] for gpu in node["gpus"]]
        self.termination_log = folder / "termination-log"
        self.termination_log.touch()


@pytest.fixture
def machine(tmp_path: Path, forked: None) -> Machine:
    return Machine(tmp_path)


def validate(machine: Machine, *flags: str) -> int:
    return main(
        [
            "validate",
            f"--driver=sim:{machine.description}",
            f"--termination-log={machine.termination_log}",
            f"--deadline={DEADLINE_S}",
            "--time=0.1",
            *flags,
        ]
    )


def grave(result: Result, machine: Machine) -> set[tuple[str, int]]:
    """The checks of the overall verdict, with the place of their GPU."""
    return {
        (check.id, machine.gpus.index(check.gpu))
        for check in result.checks
        if check.verdict is result.verdict
    }


def test_issue13_04_a_healthy_node_passes_and_says_what_was_not_looked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With processes that are started as everywhere else, not forked."""
    machine = Machine(tmp_path)
    status = validate(machine)
    said = capsys.readouterr()
    lines = said.out.splitlines()
    left = msgspec.json.decode(machine.termination_log.read_bytes(), type=Result)
    assert (status, left.verdict) == (0, "pass")
    assert lines[1] == "All checks pass on 3 GPUs."
    assert lines[3].split()[:4] == ["GPU", "PCI", "VERDICT", "MEMORY"]
    assert [line.split()[0] for line in lines[4:7]] == ["0", "1", "2"]
    assert "Not looked for: matrix throughput" in lines[-1]
    assert "starting CUDA on 3 GPUs" in said.err
    assert len(said.err.splitlines()) == 8


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        pytest.param({"cuda__stuck_bits": {5: 4096}}, (2, {("memory", 1)}), id="a bad bit"),
        pytest.param(
            {"cuda__to_host": 30.0, "cuda__to_peers": {2: 100.0}},
            (1, {("device-to-host", 1), ("device-to-host-together", 1), ("peer", 1)}),
            id="slow links to the host and to one peer",
        ),
        pytest.param({"cuda__wrong_bits_of_fma": 1}, (2, {("checksum", 1)}), id="minority"),
        pytest.param({"hang_s": {"cuModuleGetFunction": 90.0}}, (2, {("memory", 1)}), id="a hang"),
        pytest.param(
            {"cuda__lost_at": "cuMemcpyPeerAsync"},
            (2, {("device-to-host", 1), ("counters", 1)}),
            id="lost while another GPU writes to it",
        ),
    ],
)
def test_issue13_04_each_fault_ends_in_its_verdict_on_its_gpu(
    machine: Machine,
    capsys: pytest.CaptureFixture[str],
    fault: dict[str, Any],
    expected: tuple[int, set[tuple[str, int]]],
) -> None:
    set_gpu(machine.description, 1, **fault)
    others = {machine.gpus[0], machine.gpus[2]}
    for deadline_s in HANG_DEADLINES_S if "hang_s" in fault else (DEADLINE_S,):
        status = validate(machine, "--json", f"--deadline={deadline_s}")
        result = msgspec.json.decode(capsys.readouterr().out, type=Result)
        whole = {check.gpu for check in result.checks if check.id == "checksum"}
        if others <= whole:
            break
    assert (status, grave(result, machine)) == expected
    left = msgspec.json.decode(machine.termination_log.read_bytes(), type=Result)
    assert left.verdict is result.verdict
    assert others <= whole, "the others are tested to the end: one GPU holds up no other"


def test_issue13_04_gpus_in_use_are_not_touched_unless_somebody_insists(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    set_gpu(machine.description, 1, processes=[{"pid": 4711}])
    assert validate(machine) == 3
    said = capsys.readouterr()
    assert "GPU 1 is in use by process 4711: nothing was tested" in said.out
    assert "starting CUDA" not in said.err
    assert validate(machine, "--gpus=1", "--even-if-busy") == 0


def test_memory_held_by_somebody_out_of_sight_is_use_as_well(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    set_gpu(machine.description, 1, cuda__used_bytes=2048)
    assert validate(machine, "--gpus=1") == 3
    assert "somebody out of sight uses it" in capsys.readouterr().out


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"init_error": 9}, id="no driver"),
        pytest.param({"errors": {"cuInit": 802}}, id="a fabric that is not up"),
        pytest.param({"missing": ["cuModuleLoadData"]}, id="an old library"),
        pytest.param({"hang_s": {"nvmlSystemGetDriverVersion": 90.0}}, id="NVML hangs"),
    ],
)
def test_issue13_04_what_could_not_run_is_unknown_and_never_a_pass(
    machine: Machine, capsys: pytest.CaptureFixture[str], broken: dict[str, Any]
) -> None:
    set_node(machine.description, **broken)
    assert validate(machine, "--json", "--gpus=0", "--deadline=3") == 3
    assert json.loads(capsys.readouterr().out)["verdict"] == "unknown"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param(("--gpus=7",), "names a GPU that is not here; here: 0, 1, 2", id="gpus"),
        pytest.param(("--time=0",), "--time '0' is no number", id="time"),
        pytest.param(("--driver=other",), "neither real nor sim:FILE", id="driver"),
        pytest.param(("--expected-gpus=many",), "--expected-gpus 'many'", id="expected"),
    ],
)
def test_wrong_use_is_64_and_one_sentence(
    machine: Machine,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    words: str,
) -> None:
    assert validate(machine, *flags) == 64
    assert words in capsys.readouterr().err.splitlines()[-1]


def test_a_job_that_is_deleted_ends_at_once_and_says_unknown(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    set_gpu(machine.description, 0, hang_s={"cuModuleGetFunction": 90.0})
    flags = ("--gpus=0", f"--termination-log={machine.termination_log}")
    program = [
        sys.executable,
        "-m",
        "agent.cli",
        "validate",
        f"--driver=sim:{machine.description}",
    ]
    running = subprocess.Popen([*program, *flags], stderr=subprocess.PIPE, cwd=ROOT, text=True)
    assert running.stderr is not None
    with running.stderr:
        next(line for line in running.stderr if "writing patterns" in line)
        running.terminate()
        assert running.wait(30) == 130
    left = msgspec.json.decode(machine.termination_log.read_bytes(), type=Result)
    assert (left.verdict, left.message) == ("unknown", "It was interrupted.")


def test_without_a_pod_no_termination_log_is_made(machine: Machine) -> None:
    machine.termination_log.unlink()
    set_node(machine.description, init_error=9)
    assert validate(machine) == 3
    assert not machine.termination_log.exists()
