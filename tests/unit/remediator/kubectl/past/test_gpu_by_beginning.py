"""The beginning of a UUID is enough where one GPU has it; of several it is said which they are."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hack.sim.cluster.http.threaded import HostedServer
from hack.sim.cluster.resource import NODES
from tests.support.remediator.kubectl_cluster import cluster, load
from tests.support.remediator.kubectl_objects import HEALTHS, node, sick
from tests.support.remediator.record_objects import RECORDS, records

NAME = "gpu-7"


def on_record(hosted: HostedServer) -> None:
    _, once, *_ = records()
    for number in range(7):
        one = copy.deepcopy(once)
        one["metadata"]["name"] = f"gpu-1badcaf{number}"
        one["status"]["uuid"] = f"GPU-1badcaf{number}"
        load(hosted, RECORDS, one)


def accused(hosted: HostedServer) -> None:
    """Nothing is written yet: a verdict names them."""
    verdict = sick(NAME)
    verdict["status"]["incidents"][0]["gpus"] = ["GPU-1badcaf0", "GPU-1badcaf1"]
    load(hosted, NODES, node(NAME))
    load(hosted, HEALTHS, verdict)


@pytest.mark.parametrize(
    ("command", "fill", "said"),
    [
        pytest.param(("history", "gpu"), on_record, "7 GPUs begin with GPU-1bad: ", id="history"),
        pytest.param(("keep", "--reason", "x", "-y"), on_record, "7 GPUs begin with", id="keep"),
        pytest.param(("history", "gpu"), accused, "2 GPUs begin with GPU-1bad: ", id="unwritten"),
    ],
)
def test_walk1_04_of_several_gpus_that_begin_so_it_is_said_which(
    tmp_path: Path, command: tuple[str, ...], fill: Callable[[HostedServer], None], said: str
) -> None:
    with cluster(tmp_path, fill, led=True) as kubectl:
        code, out, err = kubectl(*command, "GPU-1bad")
    assert (code, out) == (1, "")
    assert said in err
    assert re.search(r"GPU-1badcaf0( \(.*\))?, GPU-1badcaf1", err)
    assert ("and 2 more; give more of the one you mean" in err) == (fill is on_record)
    assert "never failed" not in err
