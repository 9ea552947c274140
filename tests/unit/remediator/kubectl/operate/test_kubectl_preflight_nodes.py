"""`preflight` names what stands on nodes and does not do what people believe."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.sim.cluster import resource as r
from tests.support.remediator.kubectl_cluster import cluster, load
from tests.support.remediator.kubectl_objects import marked, node


def lines(out: str, name: str) -> list[str]:
    return [line for line in out.splitlines() if f"  {name}: " in line]


@pytest.mark.parametrize(
    ("led", "said"),
    [
        pytest.param(False, True, id="deleted without uninstall"),
        pytest.param(True, False, id="a remediator outside the cluster leads"),
    ],
)
def test_walk1_07_a_mark_that_nobody_takes_off_any_more_is_named(
    tmp_path: Path, led: bool, said: bool
) -> None:
    objects = [marked("sick", "sick-0badcafe"), node("well")]
    with cluster(
        tmp_path, lambda hosted: load(hosted, r.NODES, *objects), crds=led, led=led
    ) as kubectl:
        code, out, err = kubectl("preflight")
        _, _, why = kubectl("why", "sick")
    found = lines(out, "marks left behind")
    assert bool(found) == said, out + err
    if said:
        assert code == 0
        assert found[0].startswith("warn  marks left behind: sick: ")
        assert "kubectl gpuward uninstall takes the marks off" in found[0]
        assert "kubectl gpuward preflight says what is there" in why
