"""Pool and rack of a node from its labels."""

from __future__ import annotations

import pytest

from remediator.view.state import GroupKeys

TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({}, ("other", "other"), id="nothing"),
        pytest.param({TYPE: "p5", ZONE: "a"}, ("p5", "a"), id="falls back to type and zone"),
        pytest.param(
            {"eks.amazonaws.com/nodegroup": "ml", TYPE: "p5"}, ("ml", "other"), id="node group"
        ),
        pytest.param({"pool": "train", TYPE: "p5"}, ("train", "other"), id="bare name"),
        pytest.param(
            {"topology.example.com/rack": "r7", ZONE: "a"}, ("other", "r7"), id="any prefix"
        ),
        pytest.param(
            {"topology.kubernetes.io/rack": "std", "example.com/rack": "own"},
            ("other", "std"),
            id="the standard name first",
        ),
        pytest.param({"example.com/track": "x"}, ("other", "other"), id="only the whole name"),
        pytest.param({"pool": ""}, ("other", "other"), id="empty value"),
    ],
)
def test_default_keys(labels: dict[str, str], expected: tuple[str, str]) -> None:
    assert GroupKeys().group(labels) == expected
