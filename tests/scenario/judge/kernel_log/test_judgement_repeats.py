"""Xid 13 and 31: a program's fault until the GPU repeats it for different programs."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from rules.judge.observation import SourceName, SourceState
from rules.judge.workload import Workload, WorkloadMeta, workload_behind
from tests.support.scenario.judgement_world import World, uuid

FAULT_31 = "pid=7, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS"
CHANNEL_13 = "pid=7, name=python, Ch 00000008"
DAY_S = 86_400


def fault_13(gpc: int, tpc: int) -> str:
    """The driver prints the place without a process, and the process without a place."""
    return (
        f"pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC {gpc}, TPC {tpc}, "
        "SM 0): Out Of Range Address"
    )


def owned(kind: str, name: str, uid: str, **labels: str) -> Workload:
    """The workload of a pod with that controller."""
    owner = {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": True}
    return pod(f"{name}-x2b4z", f"pod-of-{uid}", [owner], labels)


def pod(
    name: str, uid: str, owners: list[dict[str, object]], labels: dict[str, str] | None = None
) -> Workload:
    plain = {"name": name, "namespace": "ml", "uid": uid, "labels": labels or {}}
    return workload_behind(msgspec.convert({**plain, "ownerReferences": owners}, WorkloadMeta))


def deployment(name: str, template: str) -> Workload:
    """A pod of one roll-out of a Deployment: its controller is the ReplicaSet of that roll-out."""
    labels = {"pod-template-hash": template}
    return owned("ReplicaSet", f"{name}-{template}", f"uid-{name}-{template}", **labels)


def letter(word: str) -> Workload | None:
    """`-` is a workload that was not found out."""
    return None if word == "-" else owned("Job", f"job-{word}", f"uid-{word}")


@pytest.fixture
def world() -> World:
    return World().start()


def burst(
    world: World,
    xid: int,
    workload: Workload | None,
    *,
    gpus: tuple[int, ...] = (0,),
    places: tuple[tuple[int, int], ...] = (),
    gap: float = 600,
) -> None:
    """Three lines within three seconds on each GPU, then silence."""
    for _ in range(3):
        for gpu in gpus:
            for place in places:
                world.xid(13, gpu, fault_13(*place))
            world.xid(xid, gpu, CHANNEL_13 if xid == 13 else FAULT_31, workload=workload)
        world.advance(1)
    world.advance(gap)


def bursts(world: World, xid: int, workloads: str, **how: object) -> None:
    for word in workloads:
        burst(world, xid, letter(word), **how)  # type: ignore[arg-type]


def worst(world: World) -> str:
    order = ["Info", "Degraded", "Fatal"]
    return max((str(i.row.severity) for i in world.incidents), key=order.index)


@pytest.mark.parametrize(
    ("workloads", "expected"),
    [
        ("aaa", "Info"),
        ("aaaaaaaaaa", "Info"),
        ("ab", "Info"),
        ("aab", "Degraded"),
        ("abc", "Degraded"),
        ("ab-", "Degraded"),
        ("-ab", "Degraded"),
        ("---", "Info"),
        ("--a", "Info"),
        ("a--------", "Info"),
    ],
)
def test_31_needs_three_bursts_of_two_workloads(
    world: World, workloads: str, expected: str
) -> None:
    bursts(world, 31, workloads)
    assert worst(world) == expected
    if expected == "Degraded":
        assert world.says() == "Degraded Report RunDiagnostics"


def test_the_finding_says_whose_and_where(world: World) -> None:
    burst(world, 31, deployment("llama", "6d4b75cb6d"), gpus=(3,))
    bursts(world, 31, "aa", gpus=(3,))
    (incident,) = [i for i in world.incidents if str(i.row.severity) == "Degraded"]
    assert incident.gpus == (uuid(3),)
    assert incident.evidence[-1] == (
        "Xid 31: 3 bursts within 24 h, of different workloads (Deployment ml/llama, Job ml/job-a) "
        "that show it on no other GPU of this node"
    )
    assert incident.row.closes_on.kind == "Human"


def test_what_was_concluded_is_kept_when_evidence_is_full(world: World) -> None:
    bursts(world, 31, "ab")
    for address in range(20):
        seen = world.xid(31, 0, f"{FAULT_31} faulted @ 0x{address:x}")
    world.belongs(seen, owned("Job", "job-c", "uid-c"))
    world.advance(3)
    (incident,) = [i for i in world.incidents if str(i.row.severity) == "Degraded"]
    assert len(incident.evidence) == 5
    assert "Job ml/job-c" in incident.evidence[-1]


def test_a_workload_found_out_late_still_counts(world: World) -> None:
    bursts(world, 31, "ab")
    seen = world.xid(31, 0, FAULT_31)
    world.advance(40)
    world.belongs(seen, owned("Job", "job-c", "uid-c"))
    world.advance(3)
    assert worst(world) == "Degraded"


def test_a_workload_of_a_line_that_is_not_known_changes_nothing(world: World) -> None:
    seen = world.xid(31, 0, FAULT_31)
    world.advance(2 * DAY_S)
    world.xid(31, 1, FAULT_31)
    before = world.state.bursts
    world.belongs(seen, owned("Job", "job-a", "uid-a"))
    world.belongs(replace(seen, at=world.now), owned("Job", "job-a", "uid-a"))
    assert world.state.bursts == before


@pytest.mark.parametrize("gap", [30, 300, 3600])
def test_a_crash_looping_job_stays_a_record(world: World, gap: float) -> None:
    bursts(world, 31, "a" * 40, gap=gap)
    assert worst(world) == "Info"
    assert len(world.incidents) <= 64


def test_a_cron_job_makes_one_workload_of_many_jobs(world: World) -> None:
    for minute in range(6):
        burst(world, 31, owned("Job", f"nightly-{29012345 + minute}", f"uid-{minute}"))
    assert worst(world) == "Info"


def test_the_roll_out_of_a_deployment_is_no_other_program(world: World) -> None:
    for template in ("6d4b75cb6d", "7f89d6c5b4", "5c689d88bb", "f9d4b6c7d"):
        burst(world, 31, deployment("llama", template))
    assert worst(world) == "Info"


def test_two_deployments_at_the_same_place_speak_against_the_gpu(world: World) -> None:
    for name in ("llama", "whisper", "llama"):
        burst(world, 13, deployment(name, "6d4b75cb6d"), places=((1, 2),))
    assert world.says() == "Degraded Report RunDiagnostics"
    (incident,) = [i for i in world.incidents if str(i.row.severity) == "Degraded"]
    assert ", all at GPC 1, TPC 2, of different workloads (" in incident.evidence[-1]


@pytest.mark.parametrize(
    "places",
    [
        pytest.param([((1, 2),), ((3, 4),), ((5, 6),)], id="each elsewhere"),
        pytest.param([((1, 2), (3, 4))] * 3, id="all over the chip"),
        pytest.param([((1, 2),), ((1, 2),), ((1, 2), (1, 3))], id="the last one all over"),
        pytest.param([(), (), ()], id="not named"),
    ],
)
def test_13_must_repeat_its_one_place(
    world: World, places: list[tuple[tuple[int, int], ...]]
) -> None:
    for name, where in zip("abc", places, strict=True):
        burst(world, 13, letter(name), places=where)
    assert worst(world) == "Info"


def test_two_workloads_that_fault_on_every_gpu_are_programs(world: World) -> None:
    for name in ("llama", "whisper") * 3:
        burst(world, 31, deployment(name, "6d4b75cb6d"), gpus=tuple(range(8)))
    assert worst(world) == "Info"


@pytest.mark.parametrize("elsewhere", ["a", "-"])
def test_another_gpu_that_may_show_it_for_them_is_the_program(
    world: World, elsewhere: str
) -> None:
    bursts(world, 31, elsewhere, gpus=(5,))
    bursts(world, 31, "aab")
    assert worst(world) == "Info"


def test_another_gpu_with_another_workload_does_not_excuse_this_one(world: World) -> None:
    bursts(world, 31, "c", gpus=(5,))
    bursts(world, 31, "aab")
    assert worst(world) == "Degraded"


def test_another_gpu_in_the_same_moment_counts_before_the_verdict(world: World) -> None:
    bursts(world, 31, "aa")
    world.xid(31, 0, FAULT_31, workload=letter("b"))
    world.advance(1)
    world.xid(31, 4, FAULT_31, workload=letter("b"))
    world.advance(60)
    assert worst(world) == "Info"


def test_programs_that_share_a_gpu_and_fail_together_tell_nothing(world: World) -> None:
    for _ in range(5):
        world.xid(31, 0, FAULT_31, workload=letter("a"))
        world.xid(31, 0, FAULT_31, workload=letter("b"))
        world.advance(600)
    assert worst(world) == "Info"


def test_bursts_of_another_day_do_not_count(world: World) -> None:
    bursts(world, 31, "aab", gap=13 * 3600)
    assert worst(world) == "Info"


def test_one_long_burst_is_one(world: World) -> None:
    for number in range(200):
        world.xid(31, 0, FAULT_31, workload=letter("ab"[number % 2]))
        world.advance(60)
    assert worst(world) == "Info"


def test_a_pod_without_a_controller_is_its_own_workload(world: World) -> None:
    for name in ("debug", "notebook", "debug"):
        burst(world, 31, pod(name, f"uid-{name}", []))
    assert worst(world) == "Degraded"


def test_what_a_person_repaired_is_counted_anew(world: World) -> None:
    bursts(world, 31, "aab")
    said = datetime.fromtimestamp(world.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    world.annotations["gpuward.io/repaired"] = f"{said} board replaced"
    world.node()
    world.poll()
    world.advance(60)
    assert not any(incident.active for incident in world.incidents)
    bursts(world, 31, "cd")
    assert not any(i.active and str(i.row.severity) != "Info" for i in world.incidents)
    bursts(world, 31, "c")
    assert world.says() == "Degraded Report RunDiagnostics"


def test_a_restarted_agent_begins_to_count_workloads_anew(world: World) -> None:
    bursts(world, 31, "ab")
    world.restart_agent()
    world.start()
    bursts(world, 31, "c")
    assert worst(world) == "Info"
    bursts(world, 31, "a")
    assert worst(world) == "Degraded"


def test_the_sense_itself_never_changes_health(world: World) -> None:
    before = world.verdict()
    for state in SourceState:
        world.source(SourceName.WORKLOADS, state, "Forbidden")
        assert world.verdict().health == before.health
