"""What was measured, and the verdict on it: one row for each thing that may be wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rules.catalog.signals import Signal
from rules.validate.contract import Verdict
from rules.validate.findings import (
    CheckId,
    Counters,
    Findings,
    MemorySeen,
    RateSeen,
    Stop,
    Stopped,
    Subject,
    SumsSeen,
)
from rules.validate.judge import judge
from rules.validate.refusal import in_use, occupied, untestable

H100 = "NVIDIA H100 80GB HBM3"
QUIET: dict[Signal, float] = {
    Signal.ECC_UNCORRECTED_VOLATILE: 0,
    Signal.REMAPPED_ROWS_CORRECTABLE: 2,
    Signal.PCIE_REPLAYS: 5,
    Signal.RECOVERY_ACTION: 0,
}
SLOW_LINK = {Signal.PCIE_GENERATION: 1.0, Signal.PCIE_GENERATION_MAX: 5.0}
RATES = {
    CheckId.HOST_TO_DEVICE: 55.0,
    CheckId.DEVICE_TO_HOST: 55.0,
    CheckId.HOST_TO_DEVICE_TOGETHER: 40.0,
}


def healthy(count: int = 4, product: str = H100) -> Findings:
    """Findings of a node without a fault."""
    gpus = [f"GPU-{index}" for index in range(count)]
    pairs = [(one, other) for one in gpus for other in gpus if one != other]
    counters = [Counters(gpu=gpu, values=QUIET) for gpu in gpus]
    links = {
        Signal.PCIE_WIDTH: 16.0,
        Signal.PCIE_WIDTH_MAX: 16.0,
        Signal.PCIE_GENERATION: 5.0,
        Signal.PCIE_GENERATION_MAX: 5.0,
    }
    return Findings(
        subjects=[
            Subject(uuid=gpu, index=index, product=product) for index, gpu in enumerate(gpus)
        ],
        chosen=gpus,
        expected=count,
        counted=count,
        seen_by_cuda=gpus,
        memory=[MemorySeen(gpu=gpu, tested=92, total=100) for gpu in gpus],
        rates=[
            *(RateSeen(check=c, gpu=gpu, gigabytes=v) for c, v in RATES.items() for gpu in gpus),
            *(
                RateSeen(check=CheckId.PEER, gpu=a, peer=b, gigabytes=350.0, link="NV18")
                for a, b in pairs
            ),
        ],
        sums=[SumsSeen(gpu=gpu, launches=9, first=77) for gpu in gpus],
        before=counters,
        during=[Counters(gpu=gpu, values=links) for gpu in gpus],
        after=counters,
        after_read=True,
    )


Change = Callable[[Findings], dict[str, Any]]


def replaced(field: str, gpu: str, **new: Any) -> Change:
    """The findings of `field` on this GPU, otherwise."""
    return lambda found: {
        field: [
            msgspec.structs.replace(one, **new) if one.gpu == gpu else one
            for one in getattr(found, field)
        ]
    }


def rate(check: CheckId, gigabytes: float, gpu: str = "GPU-1", peer: str = "") -> Change:
    return lambda found: {
        "rates": [
            msgspec.structs.replace(one, gigabytes=gigabytes)
            if (one.check, one.gpu) == (check, gpu) and one.peer == peer
            else one
            for one in found.rates
        ]
    }


def after(gpu: str, **moved: float) -> Change:
    values = {**QUIET, **{Signal[name]: value for name, value in moved.items()}}
    return replaced("after", gpu, values=values)


def stopped(why: Stop, gpus: list[str] | None = None, code: int = 0) -> Change:
    return lambda _: {
        "stopped": [
            Stopped(check=CheckId.MEMORY, gpu=gpu, why=why, call="cuLaunchKernel", code=code)
            for gpu in gpus or ["GPU-1"]
        ]
    }


ALL = ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
FAIL, DEGRADED, UNKNOWN, PASS = (
    Verdict.FAIL,
    Verdict.DEGRADED,
    Verdict.UNKNOWN,
    Verdict.PASS,
)


@pytest.mark.parametrize(
    ("change", "verdict", "accused"),
    [
        pytest.param(lambda _: {}, PASS, set(), id="nothing"),
        pytest.param(lambda _: {"expected": 5}, FAIL, {""}, id="one GPU too few"),
        pytest.param(lambda _: {"counted": 5}, FAIL, {""}, id="one that does not answer NVML"),
        pytest.param(
            lambda _: {"seen_by_cuda": ["GPU-0", "GPU-1", "GPU-2"]},
            FAIL,
            {"", "GPU-3"},
            id="one that CUDA does not see",
        ),
        pytest.param(
            replaced("memory", "GPU-1", wrong_words=1, first_wrong=64, bits=2),
            FAIL,
            {"GPU-1"},
            id="a wrong word",
        ),
        pytest.param(
            replaced("memory", "GPU-1", tested=80), UNKNOWN, {"GPU-1"}, id="too little tested"
        ),
        pytest.param(rate(CheckId.DEVICE_TO_HOST, 49.4), DEGRADED, {"GPU-1"}, id="below 90 %"),
        pytest.param(rate(CheckId.DEVICE_TO_HOST, 49.6), PASS, set(), id="90 %"),
        pytest.param(
            rate(CheckId.HOST_TO_DEVICE_TOGETHER, 30.0), DEGRADED, {"GPU-1"}, id="slow with others"
        ),
        pytest.param(
            rate(CheckId.PEER, 320.0, peer="GPU-2"), DEGRADED, {"GPU-1"}, id="below its floor"
        ),
        pytest.param(rate(CheckId.PEER, 0.0, peer="GPU-2"), UNKNOWN, {"GPU-1"}, id="no time"),
        pytest.param(
            rate(CheckId.PEER, float("nan"), peer="GPU-2"), UNKNOWN, {"GPU-1"}, id="no number"
        ),
        pytest.param(replaced("sums", "GPU-1", first=78), FAIL, {"GPU-1"}, id="minority"),
        pytest.param(
            replaced("sums", "GPU-1", differing=1), FAIL, {"GPU-1"}, id="disagrees with itself"
        ),
        pytest.param(
            replaced("sums", "GPU-1", launches=0), UNKNOWN, {"GPU-1"}, id="no launch ended"
        ),
        pytest.param(stopped(Stop.HUNG), FAIL, {"GPU-1"}, id="a hang"),
        pytest.param(stopped(Stop.DIED), UNKNOWN, {"GPU-1"}, id="its process died"),
        pytest.param(stopped(Stop.FAILED, code=719), FAIL, {"GPU-1"}, id="a failed launch"),
        pytest.param(stopped(Stop.FAILED, code=800), UNKNOWN, {"GPU-1"}, id="not permitted"),
        pytest.param(
            stopped(Stop.FAILED, ALL, code=719), UNKNOWN, set(ALL), id="the same everywhere"
        ),
        pytest.param(stopped(Stop.HUNG, ALL), FAIL, set(ALL), id="all hang"),
        pytest.param(
            after("GPU-1", ECC_UNCORRECTED_VOLATILE=1), FAIL, {"GPU-1"}, id="uncorrected ECC"
        ),
        pytest.param(
            after("GPU-1", REMAPPED_ROWS_CORRECTABLE=3), DEGRADED, {"GPU-1"}, id="a row remapped"
        ),
        pytest.param(after("GPU-1", PCIE_REPLAYS=9), PASS, set(), id="replays"),
        pytest.param(after("GPU-1", RECOVERY_ACTION=1), FAIL, {"GPU-1"}, id="wants a reset"),
        pytest.param(
            after("GPU-1", REMAPPED_ROWS_CORRECTABLE=0), UNKNOWN, {"GPU-1"}, id="counters fell"
        ),
        pytest.param(
            lambda found: {"after": found.after[:3]}, FAIL, {"GPU-3"}, id="gone after the test"
        ),
        pytest.param(
            lambda _: {"after": [], "after_read": False}, UNKNOWN, set(ALL), id="NVML gone after"
        ),
        pytest.param(
            replaced(
                "during", "GPU-1", values={Signal.PCIE_WIDTH: 8.0, Signal.PCIE_WIDTH_MAX: 16.0}
            ),
            DEGRADED,
            {"GPU-1"},
            id="a narrow link",
        ),
        pytest.param(
            replaced("during", "GPU-1", values=SLOW_LINK | {Signal.PERFORMANCE_STATE: 0.0}),
            DEGRADED,
            {"GPU-1"},
            id="a link below its generation at full speed",
        ),
        pytest.param(
            replaced("during", "GPU-1", values=SLOW_LINK | {Signal.PERFORMANCE_STATE: 2.0}),
            DEGRADED,
            {"GPU-1"},
            id="a link below its generation in the state of a workstation card",
        ),
        pytest.param(
            replaced("during", "GPU-1", values=SLOW_LINK | {Signal.PERFORMANCE_STATE: 8.0}),
            PASS,
            set(),
            id="a link that rests",
        ),
        pytest.param(
            lambda found: {"memory": found.memory[1:], "sums": found.sums[1:]},
            UNKNOWN,
            {"GPU-0"},
            id="not tested",
        ),
    ],
)
def test_issue13_04_each_fault_has_its_verdict_and_accuses_its_gpu(
    change: Change, verdict: Verdict, accused: set[str]
) -> None:
    found = healthy()
    result = judge(msgspec.structs.replace(found, **change(found)))
    assert result.verdict is verdict
    assert {check.gpu for check in result.checks if check.verdict is verdict} - (
        set(ALL) | {""} if verdict is PASS else set()
    ) == accused


def test_issue13_04_an_unknown_product_is_compared_with_siblings_only_and_it_says_so() -> None:
    found = healthy(product="NVIDIA X900")
    slow_all = [msgspec.structs.replace(one, gigabytes=3.0) for one in found.rates]
    result = judge(msgspec.structs.replace(found, rates=slow_all))
    assert result.verdict is PASS
    assert result.notes == [
        "No bandwidth is known for NVIDIA X900: compared with its siblings only."
    ]
    assert judge(msgspec.structs.replace(healthy(), rates=slow_all)).verdict is DEGRADED


def test_issue13_04_one_gpu_alone_says_that_nobody_was_there_to_compare_with() -> None:
    result = judge(healthy(1, product="NVIDIA X900"))
    assert result.verdict is PASS
    assert result.notes == [
        "No bandwidth is known for NVIDIA X900: compared with nothing.",
        "One GPU has nobody to vote with: its checksum was compared with its own alone.",
    ]


def test_two_gpus_that_disagree_are_both_suspects() -> None:
    found = healthy(2)
    result = judge(msgspec.structs.replace(found, **replaced("sums", "GPU-1", first=78)(found)))
    assert [check.gpu for check in result.checks if check.verdict is FAIL] == ["GPU-0", "GPU-1"]


def test_pairs_are_compared_with_pairs_that_are_joined_alike() -> None:
    found = healthy(product="NVIDIA X900")
    through_host = [
        msgspec.structs.replace(one, gigabytes=20.0, link="SYS")
        if one.check is CheckId.PEER and "GPU-3" in (one.gpu, one.peer)
        else one
        for one in found.rates
    ]
    assert judge(msgspec.structs.replace(found, rates=through_host)).verdict is PASS


def test_a_part_of_the_gpus_is_no_missing_gpu() -> None:
    found = healthy()
    part = ["GPU-0", "GPU-1"]
    result = judge(
        Findings(
            subjects=found.subjects,
            chosen=part,
            counted=4,
            seen_by_cuda=found.seen_by_cuda,
            memory=[one for one in found.memory if one.gpu in part],
            sums=[one for one in found.sums if one.gpu in part],
        )
    )
    assert result.verdict is PASS


def test_nothing_measured_is_unknown() -> None:
    assert judge(Findings(subjects=[])).verdict is UNKNOWN
    found = msgspec.structs.replace(healthy(), trouble=["There is no CUDA here."])
    assert (judge(found).verdict, judge(found).message) == (UNKNOWN, "There is no CUDA here.")


def test_issue13_04_the_message_names_check_gpu_value_and_floor() -> None:
    found = healthy()
    result = judge(msgspec.structs.replace(found, **rate(CheckId.DEVICE_TO_HOST, 30.0)(found)))
    assert result.message == (
        "device-to-host on GPU 1: 30 GB/s, at least 49.5; 90 % of the median of 3 like it."
    )


def test_issue13_04_a_gpu_in_use_is_left_alone_with_the_reason() -> None:
    idle = Subject(uuid="GPU-0", index=0)
    busy = Subject(uuid="GPU-1", index=1, processes=(7, 8))
    assert (in_use([idle]), untestable([idle]), occupied(idle, 95, 100)) == ("", "", "")
    assert in_use([idle, busy]).startswith("GPU 1 is in use by process 7, 8: nothing was tested")
    assert "GPU 0 has 40 % of its memory free" in occupied(idle, 40, 100)
    assert "MIG mode" in untestable([Subject(uuid="GPU-2", index=2, mig=True)])
