"""Who counts as an owner at work on a node, and who only looks like one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rules.api.nodes import LeaseView
from rules.api.timestamps import parse_time
from rules.session.exclusions import working_owner
from tests.support.scenario.drain_objects import node

NOW = parse_time("2026-01-01T01:00:00Z") or 0.0


def tainted(key: str) -> Any:
    return node(spec={"taints": [{"key": key, "effect": "NoSchedule"}]})


def labelled(key: str, value: str) -> Any:
    return node(metadata={"labels": {key: value}})


UPGRADE = "nvidia.com/gpu-driver-upgrade-state"


@pytest.mark.parametrize(
    ("target", "at_work"),
    [
        pytest.param(node(), False, id="nobody"),
        pytest.param(tainted("ToBeDeletedByClusterAutoscaler"), True, id="autoscaler"),
        pytest.param(tainted("karpenter.sh/disrupted"), True, id="karpenter"),
        pytest.param(tainted("someone/else"), False, id="other-taint"),
        pytest.param(labelled(UPGRADE, "upgrade-required"), False, id="upgrade-announced"),
        pytest.param(labelled(UPGRADE, "cordon-required"), True, id="upgrade-begins"),
        pytest.param(labelled(UPGRADE, "uncordon-required"), True, id="upgrade-ends"),
        pytest.param(labelled(UPGRADE, "upgrade-done"), False, id="upgrade-done"),
        pytest.param(labelled(UPGRADE, "upgrade-failed"), False, id="upgrade-failed"),
        pytest.param(labelled("nvidia.com/mig.config.state", "pending"), True, id="mig-pending"),
        pytest.param(labelled("nvidia.com/mig.config.state", "success"), False, id="mig-success"),
        pytest.param(
            labelled("nvidia.com/gpu.deploy.driver", "paused-for-driver-upgrade"),
            True,
            id="paused",
        ),
        pytest.param(labelled("nvidia.com/gpu.deploy.driver", "true"), False, id="deployed"),
        pytest.param(
            labelled("nvidia.com/gpu.deploy.dcgm", "paused-for-gpuward"), False, id="our-own"
        ),
        pytest.param(
            node(metadata={"annotations": {"weave.works/kured-reboot-in-progress": "x"}}),
            True,
            id="kured",
        ),
    ],
)
def test_owners(target: Any, at_work: bool) -> None:
    assert bool(working_owner(target, None, NOW)) == at_work


@pytest.mark.parametrize(
    ("holder", "renewed", "duration", "held"),
    [
        ("nmo", "2026-01-01T00:30:00.000000Z", 3600, True),
        ("nmo", "2026-01-01T00:30:00.000000Z", 600, False),
        ("", "2026-01-01T00:30:00.000000Z", 3600, False),
        ("nmo", "garbage", 3600, False),
    ],
)
def test_a_maintenance_lease_counts_while_it_runs(
    holder: str, renewed: str, duration: int, held: bool
) -> None:
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": duration}
    lease = msgspec.convert({"metadata": {"name": "n0"}, "spec": spec}, LeaseView)
    assert bool(working_owner(node(), lease, NOW)) == held
