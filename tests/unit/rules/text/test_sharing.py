"""Equal parts of many objects share memory and keep their values."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rules.api.metadata import ObjectMeta
from rules.api.nodes import NodeCondition, NodeStatus, NodeView, QuarantineView
from rules.api.quarantine import Condition, QuarantineSpec, QuarantineStatus
from rules.text.tolerant import Sharing, understand


def node(name: str) -> NodeView:
    """Return a decoded node that shares nothing with another node."""
    made = NodeView(
        metadata=ObjectMeta(name=name, labels={"example.com/pool": "eight gpus"}),
        status=NodeStatus(conditions=(NodeCondition(type="Ready", message="it is ready"),)),
    )
    found = understand(msgspec.json.encode(made), NodeView).value
    assert found is not None
    return found


def test_two_nodes_share_equal_strings() -> None:
    shared = Sharing()
    one, other = shared.share(node("a")), shared.share(node("b"))
    assert one == node("a")
    assert other == node("b")
    assert one.labels["example.com/pool"] is other.labels["example.com/pool"]
    assert one.status.conditions is other.status.conditions
    assert one.labels is not other.labels


TEXT = st.sampled_from(["", "a", "b", "Ready"])
META = st.builds(ObjectMeta, name=TEXT, labels=st.dictionaries(TEXT, TEXT))
ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 1), st.sampled_from([0.0, 1.0]), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner)),
)
STATUS = st.builds(
    QuarantineStatus,
    phase=TEXT,
    conditions=st.lists(st.builds(Condition, type=TEXT, status=TEXT)).map(tuple),
    evidence=st.dictionaries(TEXT, ANY),
)
SPEC = st.builds(QuarantineSpec, node_name=TEXT, hold=st.booleans())


@given(st.lists(st.builds(QuarantineView, metadata=META, spec=SPEC, status=STATUS)))
def test_a_shared_value_equals_the_original(sessions: list[QuarantineView]) -> None:
    shared = Sharing()
    for session in sessions:
        # Encoded: True, 1 and 1.0 are equal and are not the same value.
        assert msgspec.json.encode(shared.share(session)) == msgspec.json.encode(session)


def test_a_large_cache_is_cleared() -> None:
    shared = Sharing(most_chars=100)
    first = shared.share(("text",))
    assert shared.share(("te" + "xt",)) is first
    shared.share("x" * 101)
    assert shared.share(("te" + "xt",)) is not first
