"""The kubelet's PodResources API: against a real gRPC server, none, a hung one, and garbage."""

import random
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.sources import pod_resources
from agent.sources.pod_resources import CallError, PodResourcesPoller, call, read_list
from rules.judge.observation import (
    AssignedDevice,
    PodDevices,
    PodResourcesSeen,
    SourceChanged,
    SourceState,
)
from tests.support.agent.kubelet import Kubelet, answering, encoded, pod

GPU = "GPU-00000001-0000-0000-0000-000000000000"
SETTINGS = bytes.fromhex("000000040000000000")


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    with Kubelet(tmp_path / "kubelet.sock") as running:
        yield running


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "kubelet.sock"))
        listening.listen()
        yield listening


def reason(path: Path, within_s: float = 0.3, **options: int) -> str:
    with pytest.raises(CallError) as error:
        call(str(path / "kubelet.sock"), within_s, **options)
    return str(error.value)


def test_pods_with_devices_are_listed(kubelet: Kubelet) -> None:
    kubelet.pods = [
        pod("web"),
        pod("job-0", GPU, f"{GPU}::1"),
        pod("dra-0", claims=[("claim-a", "gpu-3")]),
    ]
    assert read_list(call(kubelet.path), 7.0) == PodResourcesSeen(
        at=7.0,
        pods=(
            PodDevices(
                namespace="train",
                pod="job-0",
                plugin=(("nvidia.com/gpu", GPU), ("nvidia.com/gpu", f"{GPU}::1")),
            ),
            PodDevices(
                namespace="train",
                pod="dra-0",
                dra=(
                    AssignedDevice(
                        driver="gpu.nvidia.com", pool="n1", device="gpu-3", claim="claim-a"
                    ),
                ),
            ),
        ),
    )


def test_a_large_answer_passes_the_flow_control_of_http2(kubelet: Kubelet) -> None:
    kubelet.pods = [pod(f"job-{n}", *(f"{GPU}::{i}" for i in range(40))) for n in range(200)]
    assert len(encoded(kubelet.pods)) > 300_000
    assert len(read_list(call(kubelet.path), 0.0).pods) == 200


def test_an_answer_that_is_too_large_is_refused(kubelet: Kubelet) -> None:
    kubelet.pods = [pod(f"job-{n}", GPU) for n in range(2_000)]
    assert reason(Path(kubelet.path).parent, 5.0, max_bytes=100_000) == "TooLarge"


def test_many_pods_are_cut() -> None:
    seen = read_list(encoded([pod(f"job-{n}", GPU) for n in range(600)]), 0.0)
    assert (len(seen.pods), seen.cut) == (pod_resources.MAX_PODS, True)
    many = read_list(encoded([pod("job", *(f"{GPU}::{n}" for n in range(300)))]), 0.0)
    assert (len(many.pods[0].plugin), many.cut) == (pod_resources.MAX_DEVICES, True)


def test_a_refused_call(kubelet: Kubelet) -> None:
    kubelet.fails = True
    assert reason(Path(kubelet.path).parent, 5.0) == "Refused"


def test_a_hung_kubelet_costs_the_time_of_one_call(kubelet: Kubelet) -> None:
    kubelet.hangs.clear()
    began = time.monotonic()
    assert reason(Path(kubelet.path).parent) == "NoAnswer"
    assert time.monotonic() - began < 3


def test_no_socket_and_one_without_a_listener(tmp_path: Path) -> None:
    assert reason(tmp_path) == "NoSocket"
    with socket.socket(socket.AF_UNIX) as closed:
        closed.bind(str(tmp_path / "kubelet.sock"))
        assert reason(tmp_path) == "NoAnswer"


def trickle(peer: Any) -> None:
    for _ in range(100):
        peer.sendall(SETTINGS)
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 20, "NoAnswer", id="HTTP/1"),
        pytest.param(SETTINGS + b"\xff" * 4000, "NoAnswer", id="a frame of 16 MiB"),
        pytest.param(SETTINGS + b"\xff" * 5_000_000, "TooLarge", id="a large frame"),
        pytest.param(SETTINGS + bytes(9), "Garbled", id="data without a stream"),
        pytest.param(b"", "NoAnswer", id="closed"),
        pytest.param(SETTINGS, "NoAnswer", id="closed after the settings"),
        pytest.param(trickle, "NoAnswer", id="one frame every 50 ms"),
    ],
)
def test_a_peer_that_is_no_grpc_server(
    listener: socket.socket,
    tmp_path: Path,
    answer: bytes | Callable[[Any], None],
    expected: str,
) -> None:
    answering(listener, answer)
    assert reason(tmp_path) == expected


def test_random_answers_end_in_an_error_or_a_bounded_list(
    listener: socket.socket, tmp_path: Path
) -> None:
    draw = random.Random(7)
    answering(listener, lambda peer: peer.sendall(SETTINGS + draw.randbytes(600)))
    for _ in range(100):
        assert reason(tmp_path, 0.05) in {"Garbled", "NoAnswer", "Refused"}


def test_damaged_messages_are_an_error_or_a_bounded_list() -> None:
    draw = random.Random(11)
    good = encoded([pod(f"job-{n}", GPU, claims=[("c", "gpu-1")]) for n in range(20)])
    for _ in range(2_000):
        data = bytearray(good)
        for _ in range(draw.randrange(1, 6)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        cut = bytes(data[: draw.randrange(1, len(data) + 1)])
        try:
            seen = read_list(cut, 0.0)
        except ValueError:
            continue
        assert len(seen.pods) <= pod_resources.MAX_PODS


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"\x0a\x05abc", id="cut"),
        pytest.param(b"\x0b", id="group"),
        pytest.param(b"\xff" * 20, id="endless number"),
        pytest.param(b"\x08\x01" * (pod_resources.MAX_FIELDS + 1), id="too many fields"),
    ],
)
def test_a_message_that_is_no_list(message: bytes) -> None:
    with pytest.raises(ValueError):
        read_list(message, 0.0)


class Polled:
    def __init__(self, path: str, **options: Any) -> None:
        self.facts: list[PodResourcesSeen | SourceChanged] = []
        self.poller = PodResourcesPoller(path, self.facts.append, **options)

    @property
    def states(self) -> list[tuple[SourceState, str]]:
        return [(f.state, f.reason) for f in self.facts if isinstance(f, SourceChanged)]

    @property
    def lists(self) -> int:
        return sum(isinstance(fact, PodResourcesSeen) for fact in self.facts)


def test_a_missing_socket_is_absent_until_the_kubelet_has_answered(
    tmp_path: Path,
) -> None:
    polled = Polled("auto", usual=str(tmp_path / "kubelet.sock"))
    assert not polled.poller.poll()
    assert not polled.poller.poll()
    assert polled.states == [(SourceState.ABSENT, "NoSocket")]
    with Kubelet(tmp_path / "kubelet.sock"):
        assert polled.poller.poll()
    assert not polled.poller.poll()
    assert polled.states[1:] == [
        (SourceState.UP, ""),
        (SourceState.DOWN, "NoSocket"),
    ]


def test_a_socket_that_was_named_must_exist(tmp_path: Path) -> None:
    polled = Polled(str(tmp_path / "kubelet.sock"))
    assert not polled.poller.poll()
    assert polled.states == [(SourceState.DOWN, "NoSocket")]


def test_a_wanted_list_is_read_at_once_and_again(kubelet: Kubelet) -> None:
    polled = Polled(kubelet.path, poll_s=0.02)
    polled.poller.start()
    until(lambda: polled.lists == 1)
    time.sleep(0.2)
    assert polled.lists == 1
    polled.poller.want(True)
    until(lambda: polled.lists > 3)
    polled.poller.close()


def until(reached: Callable[[], bool]) -> None:
    ends = time.monotonic() + 10
    while not reached():
        assert time.monotonic() < ends
        time.sleep(0.01)
