"""Whatever a policy file holds, the answer is a policy or what is wrong with it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rules.policy.policy import Policy, effective_view
from rules.policy.reader import load_policy
from rules.repair.ladder import LADDER

KEYS = st.sampled_from(
    [
        *effective_view(Policy()), *LADDER, "adapters", "steps", "adapter", "mode",
        "severity", "Fatal", "provider", "template", "taint", "label", "key", "reason", "selector",
        "strategy", "target", "create", "patch", "refuse", "search", "match", "per", "idle",
        "Mine", "x", 7, None,
    ]
)  # fmt: skip
LEAVES = st.sampled_from(
    [None, True, 7, -1.5, "", "10m", "Job", "Drain", "Enforce", "a b", "Mine", float("nan"), b"x"]
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=30,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=6)


@given(document=DOCUMENTS)
def test_any_document_is_a_policy_or_has_problems_that_can_be_told(document: Any) -> None:
    found = load_policy(document)

    if isinstance(found, Policy):
        return
    assert found
    assert all(one.sentence("f").isprintable() for one in found)
