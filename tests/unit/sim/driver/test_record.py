"""The recorder: a node read through pynvml becomes a description that reads the same."""

import json
import shutil
from typing import Any, cast

import pytest
import yaml

from agent.cli import main as agent
from hack.sim.driver import NODES, install, set_gpu, set_node
from hack.sim.record.__main__ import main
from hack.sim.record.reading import initialised, read_node
from rules.catalog.signals import Signal

SHIPPED = sorted(path.stem for path in NODES.glob("*.yaml"))
FAULTS = {
    "sick memory": {
        "remap": {"uncorrectable": 8, "failure": True, "histogram": [639, 0, 0, 0, 1]}
    },
    "heat": {"clock_events": ["hw_thermal", "sw_power_cap"], "temperature__gpu": 91},
    "links": {"nvlink__down": [7, 9], "nvlink__crc": {3: 5, 4: 6}},
    "the driver asks": {"recovery_action": 4, "pcie": {"width": 4, "replays": 9}},
    "odd answers": {
        "errors": {
            "nvmlDeviceGetMarginTemperature": 999,
            "NVML_FI_DEV_REMAPPED_PENDING": 3,
            "nvmlDeviceGetSramEccErrorStatus": 3,
        }
    },
    "no ECC, no persistence": {"ecc": {"enabled": False, "pending": True}, "persistence": False},
}


@pytest.fixture
def node(tmp_path):
    copy = tmp_path / "node.yaml"
    shutil.copy(NODES / "h100-8-nvswitch.yaml", copy)
    return copy


def recorded(node, *flags):
    path = node.with_name("recorded.yaml")
    assert main([f"--nvml=sim:{node}", f"--output={path}", *flags]) == 0
    return path


def read(path):
    with install(path), initialised():
        found = read_node()
    # The handles of two runs differ; what they are of does not.
    gpus: list[Any] = [gpu._replace(gpu=cast("Any", gpu.gpu.device)) for gpu in found.gpus]
    return found._replace(gpus=gpus)


def checked(path, capsys):
    """The health status as JSON, without what belongs to the moment."""
    status = agent(["check", "--json", "--kmsg=off", f"--nvml=sim:{path}"])
    found = json.loads(capsys.readouterr().out)
    moment = {"observedAt", "readAt", "since", "id", "firstSeen", "lastSeen", "closedAt", "count"}
    moment |= {"cursor"}

    def lasting(value):
        if isinstance(value, dict):
            return {key: lasting(item) for key, item in value.items() if key not in moment}
        return [lasting(item) for item in value] if isinstance(value, list) else value

    return status, lasting(found)


@pytest.mark.parametrize("stem", SHIPPED)
def test_every_kind_of_node_replays_as_it_was_read(stem, tmp_path, capsys):
    node = tmp_path / "node.yaml"
    shutil.copy(NODES / f"{stem}.yaml", node)
    path = recorded(node)
    assert "replays" not in capsys.readouterr().err
    assert read(path) == read(node)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_a_sick_node_replays_as_sick(node, fault, capsys):
    set_gpu(node, 3, **fault)
    path = recorded(node)
    assert "in the replay" not in capsys.readouterr().err
    before, after = read(node), read(path)
    assert [gpu.values for gpu in after.gpus] == [gpu.values for gpu in before.gpus]


def test_check_reports_the_same_for_the_recording(node, capsys):
    set_gpu(node, 3, remap={"failure": True}, recovery_action=1)
    path = recorded(node)
    capsys.readouterr()
    status, found = checked(node, capsys)
    assert status == 2
    assert checked(path, capsys) == (status, found)


def test_identities_stay_unless_asked_and_nothing_else_goes(node):
    plain = yaml.safe_load(recorded(node).read_text())
    hidden = recorded(node, "--anonymise")
    text, changed = hidden.read_text(), yaml.safe_load(hidden.read_text())
    for before, after in zip(plain["gpus"], changed["gpus"], strict=True):
        assert before["uuid"] not in text
        assert before["serial"] not in text
        kept = {"uuid": "", "serial": ""}
        assert {**before, **kept} == {**after, **kept}
    assert read(hidden).gpus[3].values[Signal.PRESENCE] == "present"


def test_without_a_driver_there_is_one_sentence(node, capsys):
    set_node(node, init_error=9)
    assert main([f"--nvml=sim:{node}"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
