"""Any document is a policy or has problems that can be reported; any trigger is bounded and
stable.
"""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rules.api.nodes import NodeView
from rules.policy.policy import Policy, effective_view
from rules.policy.reader import load_policy
from rules.repair.ladder import LADDER
from rules.session.causes import cause_of
from rules.session.external import External, external_of, first_seen, holds

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
PARTS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=30,
)
DOCUMENTS = st.dictionaries(KEYS, PARTS, max_size=6)


@given(document=DOCUMENTS)
def test_any_document_is_a_policy_or_has_printable_problems(document: Any) -> None:
    found = load_policy(document)

    if isinstance(found, Policy):
        return
    assert found
    assert all(one.sentence("f").isprintable() for one in found)


NOW = 1_790_000_000.0
DOCUMENT = {
    "external": [
        {"match": "condition Bad", "reason": "OtherBad", "for": "30s"},
        {"match": "condition Good=False", "reason": "NotGood"},
        {"match": "label x.example/at", "before": "1h", "reason": "Soon", "for": "0s"},
        {"match": "annotation x.example/note", "reason": "Noted"},
        {"match": "taint x.example/out:NoSchedule", "reason": "Tainted"},
    ]
}
TIMES = st.one_of(
    st.none(),
    st.text(max_size=40),
    st.sampled_from(["2026-09-21T14:00:00Z", "2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z"]),
)
VALUES = st.one_of(TIMES.filter(bool), st.integers(0, 10**15).map(str), st.text(max_size=300))
CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["Bad", "Good", "Ready", "GPUHealthy"]),
            "status": st.sampled_from(["True", "False", "Unknown", "", "odd"]),
            "reason": st.text(max_size=40),
            "message": st.text(max_size=600),
            "lastTransitionTime": TIMES,
        }
    ),
    max_size=4,
)
KEPT = st.dictionaries(st.sampled_from(["x.example/at", "x.example/note"]), VALUES)
TAINTS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["x.example/out", "y"]),
            "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
            "timeAdded": TIMES,
        }
    ),
    max_size=3,
)


def policy() -> Policy:
    loaded = load_policy(DOCUMENT)
    assert isinstance(loaded, Policy)
    return loaded


POLICY = policy()


def node(conditions: Any, labels: Any, notes: Any, taints: Any) -> NodeView:
    raw = {
        "metadata": {"name": "n", "uid": "u", "labels": labels, "annotations": notes},
        "spec": {"taints": taints},
        "status": {"conditions": conditions},
    }
    return msgspec.convert(raw, NodeView)


def ids(found: External) -> set[str]:
    return {incident.id for incident in found.incidents}


@settings(max_examples=100, deadline=None)
@given(CONDITIONS, KEPT, KEPT, TAINTS, st.integers(0, 7200))
def test_messages_are_bounded_and_stable(
    conditions: Any, labels: Any, notes: Any, taints: Any, later_s: int
) -> None:
    seen_node = node(conditions, labels, notes, taints)
    seen = first_seen(seen_node, POLICY, {}, NOW, {})
    now = external_of(seen_node, POLICY, NOW, seen, {})
    seen_later = first_seen(seen_node, POLICY, seen, NOW + later_s, {})
    later = external_of(seen_node, POLICY, NOW + later_s, seen_later, {})
    assert ids(now) <= ids(later), "what holds for long enough holds for longer"
    for incident in (*now.incidents, *later.incidents):
        cause = cause_of(incident)
        assert cause.source == "External"
        assert cause.message.isprintable()
        assert len(cause.message) <= 512
        assert len(cause.incident) <= 64
        assert holds(cause, "u", seen_node, POLICY, NOW + later_s, {})
        assert not holds(cause, "another machine", seen_node, POLICY, NOW, {})
    for at in (now.due_at, later.due_at):
        assert at is None or at > NOW
