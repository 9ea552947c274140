"""Errors that a PCIe bridge reports about the GPUs below it."""

import pytest
from msgspec.structs import replace

from rules.judge.health_status import Health
from rules.judge.observation import Inventory, PciFunction, PciSeen, SourceName, SourceState
from tests.support.scenario.judgement_world import World, pci, uuid

ROOT, OTHER_ROOT = "0000:00:1b.0", "0000:00:1b.1"


def containment(port: str) -> str:
    return f"pcieport {port}: DPC: containment event, status:0x1f01 source:0x0000"


def aer(port: str, severity: str) -> str:
    return (
        f"pcieport {port}: PCIe Bus Error: severity={severity}, type=Data Link Layer, (Receiver "
        "ID)"
    )


def port_of(gpu: int) -> str:
    return f"0000:0{gpu}:00.0"


class Bridged(World):
    """GPUs 0 to 3 behind one root port and 4 to 7 behind another, each behind a port of its
    own.
    """

    def see(self, observation: object) -> None:
        if isinstance(observation, PciSeen):
            functions = tuple(self._placed(function) for function in observation.functions)
            observation = replace(observation, functions=functions)
        super().see(observation)  # type: ignore[arg-type]  # an observation, as it came

    @staticmethod
    def _placed(function: PciFunction) -> PciFunction:
        gpu = int(function.address.split(":")[1], 16) - 0x10
        root = ROOT if gpu < 4 else OTHER_ROOT
        return replace(function, upstream=(root, port_of(gpu)))


@pytest.fixture
def world() -> Bridged:
    world = Bridged()
    world.start()
    return world


def test_a_containment_above_a_gpu_that_still_answers_is_degraded(world: Bridged) -> None:
    world.kernel(containment(port_of(3)))
    assert world.only().row.severity == "Info", "being judged"
    world.advance(60, polling=True)
    incident = world.only()
    assert (
        f"{incident.row.reason} {world.outcome()}" == "PcieContainment Degraded Report Investigate"
    )
    assert incident.gpus == (uuid(3),)
    assert world.assessment().health is Health.DEGRADED
    world.reboot().start()
    world.advance(60, polling=True)
    assert not world.active


def test_a_gpu_that_a_containment_cut_off_is_lost_with_that_evidence(world: Bridged) -> None:
    world.kernel(containment(port_of(3)))
    world.pull(3)
    world.advance(60, polling=True)
    incident = world.only()
    assert f"{incident.row.reason} {world.outcome()}" == "GPULost Fatal Drain RestartNode"
    assert containment(port_of(3)) in incident.evidence
    assert any("PCI" in line for line in incident.evidence)
    assert incident.gpus == (uuid(3),)


def test_so_is_one_that_left_the_bus_without_a_trace(world: Bridged) -> None:
    world.kernel(containment(port_of(3)))
    del world.config_space[3]
    world.values[3] = {}
    world.inventory = [gpu for gpu in world.inventory if gpu.index != 3]
    world.enumerate()
    world.advance(60, polling=True)
    incident = world.only()
    assert incident.row.reason == "GPULost"
    assert containment(port_of(3)) in incident.evidence


def test_a_line_that_is_read_after_the_loss_joins_it(world: Bridged) -> None:
    world.pull(3)
    world.advance(60, polling=True)
    world.kernel(containment(port_of(3)))
    world.advance(5)
    incident = world.only()
    assert incident.row.reason == "GPULost"
    assert containment(port_of(3)) in incident.evidence


@pytest.mark.parametrize("first", ["containment", "xid"])
def test_an_xid_79_and_its_containment_are_one_fault(world: Bridged, first: str) -> None:
    if first == "containment":
        world.kernel(containment(port_of(3)))
    world.xid(79, 3, "pid=0, name=, GPU has fallen off the bus.")
    if first == "xid":
        world.kernel(containment(port_of(3)))
    world.advance(5)
    incident = world.only()
    assert world.outcome() == "Fatal Drain RestartNode"
    assert incident.xids == (79,)
    assert len(incident.evidence) == 2


def test_a_root_port_cuts_off_all_that_is_behind_it_and_nothing_else(world: Bridged) -> None:
    world.kernel(containment(ROOT))
    for gpu in range(4):
        world.pull(gpu)
    world.advance(60, polling=True)
    lost = {gpu for incident in world.active for gpu in incident.gpus}
    assert lost == {uuid(gpu) for gpu in range(4)}
    assert world.reasons == {"GPULost"}
    assert all(containment(ROOT) in incident.evidence for incident in world.active)


def test_a_containment_of_another_device_stays_a_record(world: Bridged) -> None:
    world.kernel(containment("0000:5d:00.0"))
    world.advance(5)
    assert world.outcome() == "Info Report None"
    world.advance(200)
    assert not world.active


def test_a_loss_and_a_containment_of_two_gpus_are_two_faults(world: Bridged) -> None:
    world.kernel(containment(port_of(3)))
    world.pull(4)
    world.advance(60, polling=True)
    assert {(i.row.reason, i.gpus) for i in world.active} == {
        ("PcieContainment", (uuid(3),)),
        ("GPULost", (uuid(4),)),
    }


def test_an_old_containment_counts_when_the_gpu_is_gone_and_not_when_it_is_sound() -> None:
    for gone in (True, False):
        world = Bridged()
        world.node()
        world.poll_pci()
        world.kernel(containment(port_of(3)), lookback=True)
        if gone:
            world.pull(3)
        world.start()
        world.advance(90, polling=True)
        assert world.reasons == ({"GPULost"} if gone else set())


@pytest.mark.parametrize(
    ("port", "severity", "expected"),
    [
        (port_of(3), "Uncorrected (Fatal)", "PcieAerUncorrected Degraded Report Investigate GPU"),
        (port_of(3), "Corrected", "PcieAerCorrected Info Report None GPU"),
        (ROOT, "Uncorrected (Fatal)", "PcieAerUncorrected Degraded Report Investigate Node"),
        (ROOT, "Corrected", "PcieAerCorrected Info Report None Node"),
        ("0000:5d:00.0", "Uncorrected (Fatal)", ""),
    ],
)
def test_errors_of_a_bridge_count_where_a_gpu_is_behind_it(
    world: Bridged, port: str, severity: str, expected: str
) -> None:
    world.kernel(aer(port, severity))
    world.advance(5)
    found = [f"{i.row.reason} {world.outcome()} {i.scope}" for i in world.active]
    assert found == ([expected] if expected else [])
    if expected.endswith("GPU"):
        assert world.only().pci == (pci(3),)
    assert world.assessment().health in (Health.DEGRADED, Health.HEALTHY)


@pytest.mark.parametrize(
    ("port", "device", "expected"),
    [
        pytest.param(ROOT, "0000:1a:00.0", "", id="another network adapter"),
        pytest.param(port_of(3), "0000:1a:00.0", "", id="something else at the GPU's own port"),
        pytest.param(ROOT, f"{pci(3)}.0", uuid(3), id="one GPU of four"),
        pytest.param(ROOT, port_of(2), uuid(2), id="a switch's port above one GPU"),
        pytest.param(port_of(1), port_of(1), uuid(1), id="the port itself"),
        pytest.param("0000:5d:00.0", f"{pci(0)}.0", uuid(0), id="a path that is not known"),
    ],
)
@pytest.mark.parametrize("text", ["error received: ", "error message received from "])
def test_an_error_that_a_port_passes_on_is_that_of_the_device_it_names(
    world: Bridged, port: str, device: str, expected: str, text: str
) -> None:
    world.kernel(f"pcieport {port}: AER: Uncorrected (Non-Fatal) {text}{device}")
    world.advance(5)
    found = [(i.row.reason, *i.gpus) for i in world.active]
    assert found == ([("PcieAerUncorrected", expected)] if expected else [])
    assert world.assessment().health is (Health.DEGRADED if expected else Health.HEALTHY)


def test_two_functions_of_a_root_complex_are_two_ports(world: Bridged) -> None:
    world.kernel(aer(OTHER_ROOT, "Uncorrected (Fatal)"))
    world.kernel(containment(OTHER_ROOT))
    world.advance(5)
    cut = {gpu for i in world.active if i.row.reason == "PcieContainment" for gpu in i.gpus}
    assert cut == {uuid(gpu) for gpu in range(4, 8)}


@pytest.mark.parametrize("how", ["vfio-pci", "excluded"])
@pytest.mark.parametrize("since", ["always", "lately"])
def test_a_containment_above_a_passed_through_gpu_is_ignored(how: str, since: str) -> None:
    world = Bridged()
    if since == "lately":
        world.start()
    bus = PciSeen(
        at=world.now,
        functions=tuple(
            PciFunction(
                address=f"{pci(index)}.0",
                vendor=0x10DE,
                device_class=0x0302,
                driver="vfio-pci" if index == 3 and how == "vfio-pci" else "nvidia",
                config_space_ok=True,
            )
            for index in range(8)
        ),
    )
    given = world.inventory.pop(3)
    excluded = (given.pci,) if how == "excluded" else ()
    world.source(SourceName.NVML, SourceState.UP)
    world.see(
        Inventory(
            at=world.now, driver=world.driver, gpus=tuple(world.inventory), excluded=excluded
        )
    )
    world.see(bus)
    world.kernel(containment(port_of(3)))
    world.advance(5)
    assert {(i.row.severity, i.gpus) for i in world.active} == {("Info", ())}
