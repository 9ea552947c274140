"""Network ports below a folder like /sys/class/infiniband.

`infiniband_h100.json` was recorded on a node with eight H100 GPUs and published by GPUd. The EFA
tree is simulated from the AWS guide "Monitor an Elastic Fabric Adapter" and the driver efa; the
device files and network interfaces are simulated from Linux's ABI documentation.
"""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from agent.sources import host
from agent.sources.host import network_ports, ports_move
from agent.sources.machine import simulated
from hack.sim.driver import NODES, edit
from rules.judge.observation import NetworkPort, PortCounter
from tests.support.agent.no_descriptors import no_descriptors

RECORDED = json.loads(
    (Path(__file__).parents[3] / "data" / "infiniband_h100.json").read_text(encoding="utf-8")
)["files"]
EFA_ZEROS = (
    "rx_drops",
    "rdma_read_wr_err",
    "rdma_write_wr_err",
    "retrans_timeout_events",
    "impaired_remote_conn_events",
    "unresponsive_remote_events",
    "tx_bytes",
    "lifespan",
)


def tree(folder: Path, files: dict[str, str]) -> Path:
    """Write the files and return the folder of the devices."""
    root = folder / "class" / "infiniband"
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
    return root


def mlx5(
    device: str = "mlx5_0", layer: str = "InfiniBand", state: str = "4: ACTIVE"
) -> dict[str, str]:
    port = f"{device}/ports/1"
    return {f"{port}/state": state, f"{port}/link_layer": layer}


def efa(device: str = "rdmap0s31") -> dict[str, str]:
    port = f"{device}/ports/1"
    return (
        mlx5(device, "Unknown")
        | {f"{port}/hw_counters/{name}": "0" for name in EFA_ZEROS}
        | {f"{device}/hw_counters/no_completion_cmds": "3"}
    )


def test_a_recorded_node_has_all_its_ports_with_their_counters(tmp_path: Path) -> None:
    ports = {port.name: port for port in network_ports(tree(tmp_path, RECORDED))}

    assert sorted(ports) == [*(f"mlx5_{n}/1" for n in (0, 1, 4, 5, 6, 7, 8, 9)), "mlx5_bond_0/1"]
    assert all(port.active for port in ports.values())
    assert all(port.missing_files is None for port in ports.values()), "not recorded"
    assert ports["mlx5_1/1"].counters == {
        PortCounter.SYMBOL_ERRORS: 0,
        PortCounter.LINK_RECOVERIES: 0,
        PortCounter.LINK_DOWNED: 255,
        PortCounter.RECEIVE_ERRORS: 14,
        PortCounter.SLOW_RESTARTS: 0,
    }


def test_counters_of_an_efa_adapter_and_of_its_commands_are_read(tmp_path: Path) -> None:
    (port,) = network_ports(tree(tmp_path, efa()))

    assert port.name == "rdmap0s31/1"
    assert port.active is True
    assert port.counters == {
        each: 3 if each is PortCounter.EFA_COMMANDS_LOST else 0
        for each in PortCounter
        if each.name.startswith("EFA_")
    }


def test_states_are_read_and_an_adapter_that_does_not_answer_is_unknown(tmp_path: Path) -> None:
    files = mlx5("mlx5_0") | mlx5("mlx5_1", state="1: DOWN") | mlx5("mlx5_2")
    del files["mlx5_2/ports/1/state"]

    assert [(port.name, port.active) for port in network_ports(tree(tmp_path, files))] == [
        ("mlx5_0/1", True),
        ("mlx5_1/1", False),
        ("mlx5_2/1", None),
    ]


def test_a_machine_without_adapters_has_no_ports(tmp_path: Path) -> None:
    assert network_ports(tmp_path / "nowhere") == ()
    assert network_ports(tree(tmp_path, {})) == ()


@pytest.mark.parametrize(
    "text",
    ["", "N/A (no PMA)", "-1", "1e9", "0x10", "\u0664\u0664", "9" * 400, str(1 << 64), "\0"],
)
def test_a_counter_that_is_no_number_of_64_bits_is_absent(tmp_path: Path, text: str) -> None:
    counter = "mlx5_0/ports/1/counters/symbol_error"
    (port,) = network_ports(tree(tmp_path, mlx5() | {counter: text}))

    assert port.counters == {}


def test_virtual_functions_are_left_out(tmp_path: Path) -> None:
    root = tree(tmp_path, mlx5("mlx5_0") | mlx5("mlx5_1"))
    (root / "mlx5_1" / "device").mkdir()
    (root / "mlx5_1" / "device" / "physfn").symlink_to("../0000:1a:00.0")

    assert [port.name for port in network_ports(root)] == ["mlx5_0/1"]


@pytest.mark.parametrize(
    ("layer", "files", "missing"),
    [
        ("InfiniBand", ("uverbs", "umad"), ()),
        ("InfiniBand", ("uverbs", "issm"), ("umad",)),
        ("InfiniBand", ("umad",), None),
        ("InfiniBand", (), None),
        ("Ethernet", ("uverbs",), ()),
        ("Unknown", ("uverbs",), ()),
    ],
)
def test_device_files_of_a_port_are_those_of_its_link_layer(
    tmp_path: Path, layer: str, files: tuple[str, ...], missing: tuple[str, ...] | None
) -> None:
    """Without any entry of a class its module may not be loaded, so nothing is known."""
    folders = {"uverbs": "infiniband_verbs", "umad": "infiniband_mad", "issm": "infiniband_mad"}
    entries = {
        f"../{folders[name]}/{name}0/{key}": value
        for name in files
        for key, value in (("ibdev", "mlx5_0"), ("port", "1"))
        if (name, key) != ("uverbs", "port")
    }
    (port,) = network_ports(tree(tmp_path, mlx5(layer=layer) | entries))

    if missing is None:
        assert not port.missing_files
    else:
        assert port.missing_files == missing


def test_the_device_file_of_another_port_does_not_count(tmp_path: Path) -> None:
    other = {"../infiniband_verbs/uverbs0/ibdev": "mlx5_1", "../infiniband_verbs/abi_version": "6"}
    ports = network_ports(tree(tmp_path, mlx5() | mlx5("mlx5_1") | other))

    assert [port.missing_files for port in ports] == [("uverbs",), ()]


@pytest.mark.parametrize(("interfaces", "count"), [(1, 5), (2, None)])
def test_an_ethernet_port_has_the_carrier_count_of_its_only_interface(
    tmp_path: Path, interfaces: int, count: int | None
) -> None:
    names = [f"mlx5_0/device/net/eth{number}/carrier_down_count" for number in range(interfaces)]
    (port,) = network_ports(tree(tmp_path, mlx5(layer="Ethernet") | dict.fromkeys(names, "5")))

    assert port.counters.get(PortCounter.CARRIER_DOWN) == count


def test_the_number_of_ports_and_their_names_are_bounded(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    for number in range(100):
        files |= mlx5(f"mlx5_{number:03}" + "x" * 100)
    ports = network_ports(tree(tmp_path, files))

    assert len(ports) == 64
    assert all(len(port.name) <= 64 for port in ports)


def test_a_slow_adapter_leaves_the_other_ports_unknown(tmp_path: Path) -> None:
    times = iter([0.0, 1.0, 70.0, 70.0])
    files = mlx5("mlx5_0") | mlx5("mlx5_1") | mlx5("mlx5_2")

    assert network_ports(tree(tmp_path, files), lambda: next(times))[1:] == (
        NetworkPort(name="mlx5_1/1", active=None),
        NetworkPort(name="mlx5_2/1", active=None),
    )


@pytest.mark.parametrize(("mode", "moves"), [("N", True), ("Y", False), (None, False)])
def test_devices_move_between_network_namespaces_only_in_exclusive_mode(
    tmp_path: Path, mode: str | None, moves: bool
) -> None:
    parameter = "../../module/ib_core/parameters/netns_mode"

    assert ports_move(tree(tmp_path, {parameter: mode} if mode else {})) is moves


def test_exhausted_file_descriptors_do_not_make_a_port_missing(tmp_path: Path) -> None:
    root = tree(tmp_path, mlx5())
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        network_ports(root)


def test_a_poll_of_the_most_ports_costs_little(tmp_path: Path) -> None:
    """32 EFA ports, as of a p5.48xlarge: 0.2 % of a core are 120 ms of each minute."""
    files: dict[str, str] = {}
    for number in range(32):
        files |= efa(f"rdmap{number}s27")
    root = tree(tmp_path, files)
    best = min(_cpu_s(root) for _ in range(5))

    assert best < 0.03


def _cpu_s(root: Path) -> float:
    began = time.thread_time()
    assert len(host.network_ports(root)) == 32
    return time.thread_time() - began


def test_a_simulated_node_shows_the_ports_that_its_description_breaks(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text((NODES / "h100-8-nvswitch.yaml").read_text("utf-8"), "utf-8")
    broken = {
        "mlx5_0/1": {"state": "missing"},
        "mlx5_1/1": {"state": "down"},
        "mlx5_2/1": {"counters": {PortCounter.LINK_DOWNED.value: 3}, "missing_files": ["umad"]},
    }

    def broke(node: dict[str, Any]) -> None:
        node["host"]["ports"] = broken

    edit(file, broke)
    ports = simulated(str(file)).host(0.0).ports

    assert [port.name for port in ports] == [f"mlx5_{number}/1" for number in range(1, 8)]
    assert [port.active for port in ports] == [False] + [True] * 6
    assert ports[1].counters == {PortCounter.LINK_DOWNED: 3}
    assert ports[1].missing_files == ("umad",)
