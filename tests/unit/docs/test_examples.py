"""The example policies and PodTemplates of docs/examples are valid."""

from pathlib import Path

import pytest
import yaml

from rules.policy.policy import Policy
from rules.policy.pools import load_policies

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
POLICIES = sorted(EXAMPLES.glob("policies/*.yaml"))


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_an_example_policy_is_valid(path: Path) -> None:
    assert isinstance(load_policies([*yaml.safe_load_all(path.read_text())]), Policy)


def test_the_page_links_every_example() -> None:
    page = (EXAMPLES / "README.md").read_text()
    files = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.yaml")}

    assert {name for name in files if f"({name})" not in page} == set()


def test_the_example_test_uses_the_account_that_admission_allows() -> None:
    template = yaml.safe_load((EXAMPLES / "validation-job.yaml").read_text())
    policy = yaml.safe_load((EXAMPLES / "policies" / "validation-job.yaml").read_text())
    spec = template["template"]["spec"]

    assert template["metadata"]["name"] == policy["validate"]["template"]
    assert spec["serviceAccountName"] == "gpuward-validate"
    assert spec["automountServiceAccountToken"] is False
