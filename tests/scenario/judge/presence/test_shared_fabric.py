"""GPUs that are not registered with the NVSwitch fabric while others of the node are."""

import pytest

from rules.judge.observation import Service
from tests.support.scenario.judgement_world import World

MINUTE = 60
UP, DOWN = (1,) * 18, (0,) * 18


def host(*, manager: bool = True) -> World:
    """GPUs 0 to 3 are in an active partition, 4 to 7 in none."""
    world = World()
    world.start()
    world.host(running={Service.FABRIC_MANAGER} if manager else set())
    for gpu in range(8):
        inside = gpu < 4
        world.will_read(
            gpu,
            fabric_state=3 if inside else 2,
            fabric_status=0,
            nvlink_states=UP if inside else DOWN,
        )
    return world


def found(world: World) -> set[tuple[str, str]]:
    return {(i.row.reason, str(i.row.level)) for i in world.active}


def test_gpus_outside_an_active_partition_are_reported_only() -> None:
    world = host()
    world.advance(30 * MINUTE, polling=True)
    assert found(world) == {("FabricRegistrationPending", "Report")}


def test_an_annotated_shared_fabric_is_healthy() -> None:
    world = host()
    world.annotate("fabric-mode", "shared")
    for gpu in range(4):
        world.will_read(gpu, fabric_state=2, nvlink_states=DOWN)  # no partition is active
    world.advance(30 * MINUTE, polling=True)
    assert not world.active


def test_an_activated_partition_ends_the_report() -> None:
    world = host()
    world.advance(10 * MINUTE, polling=True)
    for gpu in range(4, 8):
        world.will_read(gpu, fabric_state=3, nvlink_states=UP)
    world.advance(5 * MINUTE, polling=True)
    assert not world.active


def test_a_cordon_from_before_the_first_partition_ends_with_it() -> None:
    world = host()
    for gpu in range(4):
        world.will_read(gpu, fabric_state=2, nvlink_states=DOWN)
    world.advance(10 * MINUTE, polling=True)
    assert "Cordon" in {str(i.row.level) for i in world.active}
    for gpu in range(4):
        world.will_read(gpu, fabric_state=3, nvlink_states=UP)
    world.advance(10 * MINUTE, polling=True)
    assert found(world) == {("FabricRegistrationPending", "Report")}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"fabric_status": 999}, "FabricStateFailed", id="an error status"),
        pytest.param({"fabric_state": 1}, "FabricStateFailed", id="not started"),
        pytest.param({"nvlink_states": (1,) * 17 + (0,)}, "NVLinkDown", id="one link of many"),
    ],
)
def test_gpus_that_no_partition_explains_are_cordoned(
    change: dict[str, object], expected: str
) -> None:
    world = host()
    world.will_read(5, **change)  # type: ignore[arg-type]
    world.advance(10 * MINUTE, polling=True)
    assert (expected, "Cordon") in found(world)


def test_links_are_missing_without_a_fabric_manager() -> None:
    world = host(manager=False)
    world.advance(10 * MINUTE, polling=True)
    assert ("NVLinkDown", "Cordon") in found(world)


def test_all_gpus_in_progress_without_a_fabric_manager_are_cordoned() -> None:
    world = host(manager=False)
    for gpu in range(8):
        world.will_read(gpu, fabric_state=2, nvlink_states=UP)
    world.advance(10 * MINUTE, polling=True)
    assert ("FabricStateFailed", "Cordon") in found(world)
