"""PCI functions, device files, processes, NUMA and udev of the machine."""

import errno
import os
import queue
import socket
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.sources.host import (
    MAX_PROCESSES,
    SLICE,
    host_processes,
    host_seen,
    pci_functions,
)
from agent.sources.machine import (
    Machine,
    MachineCollector,
    UdevError,
    UdevMonitor,
    concerns_gpus,
)
from rules.judge.observation import (
    HostSeen,
    PciFunction,
    PciSeen,
    Service,
    SourceChanged,
    SourceName,
    SourceState,
)
from tests.support.agent.no_descriptors import no_descriptors


def function(
    root: Path,
    address: str,
    *,
    vendor: str = "0x10de",
    kind: str = "0x030200",
    config: bytes = b"",
) -> Path:
    """A device folder of sysfs."""
    device = root / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    if config:
        (device / "config").write_bytes(config)
    return device


def bind(device: Path, driver: str) -> None:
    target = device.parent / "drivers" / driver
    target.mkdir(parents=True, exist_ok=True)
    (device / "driver").symlink_to(target)


def test_gpus_and_switches_are_found_and_nothing_else(tmp_path: Path) -> None:
    bind(function(tmp_path, "0000:3B:00.0", config=b"\xde\x10\x30\x23" * 16), "nvidia")
    function(tmp_path, "0000:5e:00.0", kind="0x030000", config=b"\xff" * 64)
    bind(function(tmp_path, "0000:86:00.0"), "vfio-pci")
    function(tmp_path, "0000:c1:00.0", kind="0x068000")
    function(tmp_path, "0000:3b:00.1", kind="0x040300")
    function(tmp_path, "0000:00:02.0", vendor="0x8086", kind="0x030000")
    (tmp_path / "0000:00:1f.0").mkdir()
    found = {
        each.address: (each.device_class, each.driver, each.config_space_ok)
        for each in pci_functions(tmp_path)
    }
    assert found == {
        "0000:3b:00.0": (0x0302, "nvidia", True),
        "0000:5e:00.0": (0x0300, "", False),
        "0000:86:00.0": (0x0302, "vfio-pci", None),
        "0000:c1:00.0": (0x0680, "", None),
    }


def test_the_bridges_above_a_gpu_are_those_on_its_way(tmp_path: Path) -> None:
    way = Path("devices") / "pci0000:00" / "0000:00:1b.0" / "0000:1a:00.0"
    function(tmp_path / way, "0000:1b:00.0", vendor="0x10de", kind="0x030200")
    bus = tmp_path / "bus" / "devices"
    bus.mkdir(parents=True)
    (bus / "0000:1b:00.0").symlink_to(Path("..") / ".." / way / "0000:1b:00.0")
    function(bus, "0000:3b:00.0", vendor="0x10de", kind="0x030200")
    found = {each.address: each.upstream for each in pci_functions(bus)}
    assert found == {"0000:1b:00.0": ("0000:00:1b.0", "0000:1a:00.0"), "0000:3b:00.0": ()}


def test_numa_nodes_without_cpus_do_not_count(tmp_path: Path) -> None:
    for number, cpus in ((0, "0-31\n"), (1, "32-63\n"), (8, "\n")):
        node = tmp_path / "node" / f"node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(cpus)
    (tmp_path / "product_uuid").write_text("4C4C4544-0000\n")
    seen = host_seen(5.0, dmi=tmp_path, numa=tmp_path / "node")
    assert seen.cpu_numa_nodes == (0, 1)
    assert seen.product_uuid == "4C4C4544-0000"
    assert seen.booted_at > 0


@pytest.mark.parametrize(
    ("action", "properties", "concerned"),
    [
        pytest.param("remove", {"PCI_ID": "10DE:2330"}, True, id="a GPU leaves"),
        pytest.param("bind", {"PCI_ID": "10de:2330"}, True, id="lower case"),
        pytest.param("add", {"PCI_ID": "8086:1533"}, False, id="another vendor"),
        pytest.param("move", {"PCI_ID": "10DE:2330"}, False, id="another action"),
        pytest.param("add", {}, False, id="no identity"),
        pytest.param(None, {"PCI_ID": "10DE:2330"}, False, id="no action"),
    ],
)
def test_udev_events_about_gpus_are_reported(
    action: str | None, properties: dict[str, str], concerned: bool
) -> None:
    assert concerns_gpus(action, properties) is concerned


def facts_of(machine: Machine, looks: int = 1) -> list[object]:
    facts: list[object] = []
    collector = MachineCollector(facts.append, machine)
    for _ in range(looks):
        collector.poll()
    return facts


def states_of(source: SourceName, facts: list[object]) -> list[tuple[SourceState, str]]:
    changes = (fact for fact in facts if isinstance(fact, SourceChanged))
    return [(each.state, each.reason) for each in changes if each.source is source]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errno.ENOENT, (SourceState.ABSENT, "NoPciBus")),
        (errno.ENFILE, (SourceState.DOWN, "OutOfFiles")),
    ],
    ids=["no bus", "not to be read now"],
)
def test_a_missing_pci_bus_does_not_affect_the_host(
    error: int, expected: tuple[SourceState, str]
) -> None:
    def functions() -> tuple[PciFunction, ...]:
        raise OSError(error, os.strerror(error))

    facts = facts_of(Machine(functions=functions))
    assert states_of(SourceName.PCI, facts) == [expected]
    assert isinstance(facts[-1], HostSeen)


def test_one_poll_reads_bus_and_host() -> None:
    gpu = PciFunction(address="0000:3b:00.0", vendor=0x10DE, device_class=0x0302)
    facts = facts_of(Machine(functions=lambda: (gpu,)), looks=2)
    kinds = [type(fact) for fact in facts]
    assert kinds == [
        *(PciSeen, SourceChanged, SourceChanged, HostSeen),
        PciSeen,
    ]


def test_an_invisible_host_is_reported_once_and_an_invalid_description_skipped() -> None:
    hosts = [HostSeen(at=1.0), HostSeen(at=2.0), HostSeen(at=3.0, services={Service.IMEX: False})]

    def host(_: float) -> HostSeen:
        if not hosts:
            raise ValueError("a file that is being written")
        return hosts.pop(0)

    facts = facts_of(Machine(functions=lambda: (), host=host), looks=16)
    assert states_of(SourceName.HOST, facts) == [
        (SourceState.ABSENT, "ProcessesOutOfSight"),
        (SourceState.UP, ""),
    ]
    assert sum(isinstance(fact, HostSeen) for fact in facts) == 3


def test_a_host_around_the_limit_reports_too_many_processes_once() -> None:
    crowd, fewer = (
        HostSeen(at=1.0, too_many_processes=True),
        HostSeen(at=1.0, services={Service.IMEX: False}),
    )
    seen = [crowd, fewer, crowd, fewer, fewer, fewer, fewer, fewer, fewer]
    looks = iter(seen)
    machine = Machine(functions=lambda: (), host=lambda _: next(looks))
    facts = facts_of(machine, looks=4 * len(seen))
    assert states_of(SourceName.HOST, facts) == [
        (SourceState.ABSENT, "TooManyProcesses"),
        (SourceState.UP, ""),
    ]
    running = [bool(fact.services) for fact in facts if isinstance(fact, HostSeen)]
    assert running == [False] * 7 + [True] * 2, "five consecutive polls below the limit"


@pytest.mark.parametrize("folder", ["pci", "proc"])
def test_exhausted_file_descriptors_do_not_make_a_gpu_missing(tmp_path: Path, folder: str) -> None:
    if folder == "pci":
        function(tmp_path, "0000:65:00.0")
        with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
            pci_functions(tmp_path)
    else:
        (tmp_path / "2").mkdir()
        with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
            host_processes(tmp_path)


def announcing() -> socket.socket:
    """A socket that may send kernel uevents; skips without the right."""
    sending = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)
    try:
        sending.sendto(b"x", (0, 1))
    except OSError as error:
        pytest.skip(f"announcements need CAP_NET_ADMIN: {error}")
    return sending


def test_lost_udev_events_are_reported_and_the_bus_is_polled() -> None:
    changes: queue.SimpleQueue[bool] = queue.SimpleQueue()
    lost: queue.SimpleQueue[Exception] = queue.SimpleQueue()
    began, go_on = threading.Event(), threading.Event()

    class Slow(UdevMonitor):
        """A monitor with a thread that is busy during the burst."""

        def _run(self, monitor: Any) -> None:
            began.set()
            go_on.wait(30)
            super()._run(monitor)

    monitor = Slow(changes.put, lost.put)
    try:
        monitor.start()
    except UdevError as error:
        pytest.skip(str(error))
    with announcing() as sending:
        assert began.wait(30)
        for _ in range(2000):
            sending.sendto(b"x" * 4000, (0, 1))
        go_on.set()
        assert str(lost.get(timeout=30))
        assert changes.get(timeout=30) is True, "anything may have come meanwhile"
        assert [thread.name for thread in threading.enumerate()].count("udev") == 1
    monitor.close()


FM, PERSISTENCED, IMEX = Service.FABRIC_MANAGER, Service.PERSISTENCED, Service.IMEX


def process(root: Path, pid: int, name: bytes, state: str = "S") -> None:
    folder = root / str(pid)
    folder.mkdir()
    stat = b"%d (%s) %s 1 1 1 0 -1 4194560 229 0 0" % (pid, name, state.encode())
    (folder / "stat").write_bytes(stat + b" 0" * 40 + b"\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """The /proc of a host, with kernel threads."""
    process(tmp_path, 1, b"systemd")
    process(tmp_path, 2, b"kthreadd")
    (tmp_path / "meminfo").touch()
    return tmp_path


def test_services_are_known_by_the_fifteen_characters_the_kernel_keeps(proc: Path) -> None:
    process(proc, 900, b"nv-fabricmanage")
    process(proc, 901, b"nvidia-persiste", "Z")
    seen = host_processes(proc)
    assert seen is not None
    assert seen.services == {FM: True, PERSISTENCED: False, IMEX: False}, "a zombie does not run"


def test_in_a_pod_the_hosts_processes_are_not_visible(tmp_path: Path) -> None:
    process(tmp_path, 1, b"gpuward-agent")
    process(tmp_path, 2, b"nvidia-smi", "D")
    assert host_processes(tmp_path) is None
    assert host_processes(tmp_path / "nowhere") is None


def test_a_process_that_ends_meanwhile_is_ignored(proc: Path) -> None:
    (proc / "77").mkdir()
    process(proc, 78, b"")
    (proc / "79").mkdir()
    (proc / "79" / "stat").write_bytes(b"")
    seen = host_processes(proc)
    assert seen is not None
    assert not any(seen.services.values())


def test_processes_are_read_in_slices_up_to_a_limit(proc: Path) -> None:
    for pid in range(3, 3 + 2 * SLICE):
        process(proc, pid, b"sleep")
    pauses: list[float] = []
    assert host_processes(proc, pauses.append) is not None
    assert len(pauses) == 2
    assert MAX_PROCESSES > 5_000
    crowd = host_processes(proc, pauses.append, max_processes=2 * SLICE)
    assert crowd is not None
    assert crowd.too_many
    assert not crowd.services
    assert len(pauses) == 2


def test_the_real_machine_shows_what_psutil_shows() -> None:
    in_sight = psutil.pid_exists(2) and psutil.Process(2).name() == "kthreadd"
    seen = host_processes(pause=lambda _: None)
    assert (seen is not None) is in_sight
    facts = host_seen(5.0)
    assert facts.booted_at == psutil.boot_time()
    assert bool(facts.services) is in_sight
