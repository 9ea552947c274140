"""Objects written by strangers: no field of theirs ends, silences or misleads a rule."""

import json
from typing import Any

import msgspec
import pytest

from hack.sim.cluster.store.selectors import parse_label_selector
from rules.api.evidence import EvidenceView, session_of
from rules.api.health import plain
from rules.api.names import ANNOTATION_SESSION
from rules.api.nodes import (
    MAX_CLAUSE,
    FreshNode,
    HealthView,
    LeaderStatus,
    NodeView,
    PauseView,
    leader_status,
)
from rules.api.object_name import (
    BadSegmentError,
    api_path,
    is_object_name,
)
from rules.api.pods import OwnerView, PodView
from rules.api.quarantine import Cause, PauseScope, PauseSpec
from rules.api.quarantine_taint import read_note
from rules.api.requests import request
from rules.api.selectors import parse_selector
from rules.api.timestamps import format_micro_time, format_time, parse_time, utc, utc_of
from rules.drain.eviction import EvictionKind, classify
from rules.fleet.node_health import set_unknown
from rules.session.causes import CRD_CAUSES, MAX_CAUSES, appended, session_name
from rules.session.exclusions import pause_covers
from rules.session.observation import staleness
from rules.text.tolerant import Understood, understand
from tests.support.scenario.drain_objects import node, pod

NOW = 1_790_000_000.0
UNCOUNTABLE = [
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59-14:00",
    "10000-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "2026-01-01T00:00:00Z" + " " * 100_000,
]


@pytest.mark.parametrize("text", UNCOUNTABLE, ids=lambda text: text[:30])
def test_a_time_that_cannot_be_computed_with_is_no_time(text: str) -> None:
    assert parse_time(text) is None
    assert utc_of(text) == text, "the output escapes it"


@pytest.mark.parametrize("at", [-1e18, -1.0, 0.0, 1e12, 1e300, float("inf"), float("nan")])
def test_every_number_can_be_spelled(at: float) -> None:
    for spell in (format_time, format_micro_time):
        assert parse_time(spell(at)) is not None
    assert len(utc(at)) == len("2026-01-31 12:03 UTC")


@pytest.mark.parametrize("text", UNCOUNTABLE, ids=lambda text: text[:30])
@pytest.mark.parametrize("field", ["observedAt", "heartbeat"])
def test_a_silent_agent_with_such_a_time_is_called_silent(text: str, field: str) -> None:
    """A pod that is gone leaves the time of its last health status; a heartbeat that is none is
    silence.
    """
    publisher = {"heartbeat": text} if field == "heartbeat" else {"pod": "x/y", "podUID": "u"}
    status = {"publisher": publisher, "observedAt": text, "nodeUID": node().uid}
    health = msgspec.convert({"metadata": {"name": "n0"}, "status": status}, HealthView)
    write = set_unknown(node(), health, {}, observing_since=0.0, now=NOW)
    assert write is not None
    assert request(write).body is not None


DOUBTFUL: list[dict[str, Any]] = [
    {},
    {"nodeSelector": {"matchExpressions": [{"key": "r", "operator": "In", "values": 5}]}},
    {"nodeSelector": {"matchExpressions": [{"key": "r", "operator": "In", "values": "r1"}]}},
    {"nodeSelector": {"matchExpressions": [{"key": "r", "operator": "In"}]}},
    {"nodeSelector": {"matchExpressions": [{"key": "r", "operator": "In", "values": [5]}]}},
    {"nodeSelector": {"matchExpressions": [{"key": "r", "operator": "Exists", "values": ["x"]}]}},
    {"nodeSelector": {"matchExpressions": [{"key": "r", "operator": "Near", "values": ["x"]}]}},
    {"nodeSelector": {"matchExpressions": [5]}},
    {"nodeSelector": {"matchExpressions": {"key": "r"}}},
    {"nodeSelector": {"matchExpression": []}},
    {"nodeSelector": {"matchLabels": {"rack": 5}}},
    {"nodeSelector": {"matchLabels": {"a/b/c": "x"}}},
    {"nodeSelector": {"matchLabels": {"rack": "-a"}}},
    {"nodeSelector": {"matchLabels": {"rack": "other"}, "matchExpressions": [{"values": 5}]}},
    {"nodes": ["Not A Node"]},
    {"nodes": []},
    {"all": False},
]


@pytest.mark.parametrize("scope", DOUBTFUL, ids=lambda scope: json.dumps(scope)[:60])
def test_a_pause_in_doubt_covers_every_node(scope: dict[str, Any]) -> None:
    wire = json.dumps({"metadata": {"name": "p"}, "spec": {"scope": scope}}).encode()
    found = understand(wire, PauseView)
    assert found.value is not None
    assert pause_covers(found.value, node(), NOW)


@pytest.mark.parametrize("spec", [5, None, {"scope": 5}, {"scope": {"all": "no"}}, {"until": 9}])
def test_a_pause_that_does_not_decode_covers_every_node(spec: Any) -> None:
    wire = json.dumps({"metadata": {"name": "p"}, "spec": spec}).encode()
    found = understand(wire, PauseView)
    assert found.value is not None
    assert pause_covers(found.value, node(), NOW)


@pytest.mark.parametrize(
    ("scope", "covers"),
    [
        ({"nodes": ["n1"]}, False),
        ({"nodes": ["n0"]}, True),
        ({"nodeSelector": {}}, True),
        ({"nodeSelector": {"matchLabels": {"rack": "a"}}}, False),
        ({"nodeSelector": {"matchLabels": {"empty": ""}}}, True),
        (
            {"nodeSelector": {"matchExpressions": [{"key": "gone", "operator": "DoesNotExist"}]}},
            True,
        ),
    ],
)
def test_a_pause_covers_its_scope(scope: dict[str, Any], covers: bool) -> None:
    pause = msgspec.convert({"metadata": {"name": "p"}, "spec": {"scope": scope}}, PauseView)
    there = node(metadata={"labels": {"empty": ""}})
    assert pause_covers(pause, there, NOW) is covers


def test_an_empty_label_value_is_kept() -> None:
    scope = PauseScope(node_selector={"matchLabels": {"key": ""}})
    assert plain(PauseSpec(scope=scope))["scope"]["nodeSelector"] == {"matchLabels": {"key": ""}}


def causes(count: int, *, severity: str = "Degraded", name: str = "i") -> list[Cause]:
    return [
        Cause(source="Detector", incident=f"{name}{n}", reason="A", severity=severity)
        for n in range(count)
    ]


def test_more_causes_than_fit_come_to_rest() -> None:
    wanted = causes(MAX_CAUSES + 9)
    full = appended((), wanted)
    assert len(full) == MAX_CAUSES
    assert appended(full, wanted) == full
    assert appended(full, reversed(wanted)) == full
    severe = causes(3, severity="Fatal", name="f")
    with_severe = appended(full, [*wanted, *severe])
    assert set(severe) <= set(with_severe), "a more severe cause takes the place of a milder one"
    assert with_severe[0] == full[0]
    assert appended(with_severe, [*wanted, *severe]) == with_severe


def test_what_still_holds_takes_the_place_of_what_ended() -> None:
    ended, holding = causes(MAX_CAUSES), causes(4, name="new")
    rows = [{"id": c.incident, "reason": "A", "active": True} for c in holding]
    health = msgspec.convert({"metadata": {}, "status": {"incidents": rows}}, HealthView)
    full = appended(tuple(ended), holding, health)
    assert set(holding) <= set(full)
    assert appended(full, holding, health) == full


def test_what_people_wrote_is_never_cut_for_our_bound() -> None:
    by_people = tuple(Cause(reason="Requested", by=f"p{n}") for n in range(CRD_CAUSES))
    assert appended(by_people, causes(40)) == by_people


@pytest.mark.parametrize(
    "name", ["", "../x", "a b", "A", "x" * 300, "a..b", "-a", "a.", "a/b", "ü", "a\n"]
)
def test_a_session_annotation_with_an_impossible_name_is_no_note(name: str) -> None:
    note = json.dumps({"session": name})
    assert read_note(node(metadata={"annotations": {"gpuward.io/session": note}})) is None


@pytest.mark.parametrize("name", [".", "..", ""])
def test_what_cannot_be_quoted_is_no_part_of_a_path(name: str) -> None:
    with pytest.raises(BadSegmentError):
        api_path("/api/v1/nodes", name)


@pytest.mark.parametrize("name", ["../../pods", "a?limit=0", "a#b", "a%2e%2e", "a/b", "a b"])
def test_a_name_is_one_segment_whatever_it_contains(name: str) -> None:
    path = api_path("/api/v1/nodes", name, "status")
    assert path.count("/") == len("/api/v1/nodes//".replace("api", "").split("/")) - 1
    assert not set("?# ") & set(path)


@pytest.mark.parametrize("code", [403, 409, 429, 500, 503])
@pytest.mark.parametrize(
    "body",
    [
        b'{"message": "caf\xe9"}',
        b'{"message": "\\ud800"}',
        b"[" * 100_000,
        b'{"details": [], "message": 5}',
        b'{"details": {"causes": [5, {"reason": 7}]}}',
        b"\xff\xfe",
        b"null",
    ],
    ids=lambda body: repr(body[:20]),
)
def test_every_answer_is_classified(code: int, body: bytes) -> None:
    for header in ("5", "²", "-1", "nan", "9" * 5000):
        outcome = classify(code, {"Retry-After": header}, body, pod(), (), NOW)
        assert outcome.kind is not EvictionKind.ACCEPTED
        assert outcome.retry_after_s >= 0


def test_a_boot_id_longer_than_its_field_is_known_by_a_hash() -> None:
    long = node(status={"nodeInfo": {"bootID": "b" * 65}})
    assert len(long.boot_id) <= 64
    assert long.boot_id != node(status={"nodeInfo": {"bootID": "b" * 66}}).boot_id
    assert node(status={"nodeInfo": {"bootID": "b" * 64}}).boot_id == "b" * 64


@pytest.mark.parametrize("cut", [".", "-", "..", "-."])
def test_a_long_node_name_cut_anywhere_makes_a_name(cut: str) -> None:
    long = "n" * (200 - len(cut)) + cut + "m" * 40
    assert is_object_name(session_name(node(long), "i1", []))


SELECTORS = [
    *("a/b/c=x", "pool=-a", "x in ()", "x notin ()", "/a=b", "A/b=c", "a=b.", "a=" + "v" * 64),
    *("k" * 64, "x in (-a)", "a..b/c", "a=b=c", "a b", "(a)", "a=ü"),
    *(
        "a",
        "!a",
        "a=b",
        "a==b",
        "a!=b",
        "a=",
        "x in (a,b)",
        "x notin (a)",
        "x in (,)",
        "x in (a,)",
    ),
    *("gpuward.io/gpus", "a.b/c_d=E.f,!g", " a = b , c ", "x in(a)"),
]


@pytest.mark.parametrize("text", SELECTORS)
def test_policy_and_server_agree_about_a_selector(text: str) -> None:
    """Nothing that `policy check` accepts is refused where it selects what is watched."""
    assert _accepts(parse_selector, text) == _accepts(parse_label_selector, text)


def _accepts(read: Any, text: str) -> bool:
    try:
        read(text)
    except Exception:  # noqa: BLE001 - both readers have their own
        return False
    return True


# --------------------------------------------------------------------------- the tolerant decoder


def test_any_owner_is_read_whatever_its_spec_is() -> None:
    spec = {"selector": {"matchLabels": "x"}, "replicas": "many", "parallelism": {}}
    wire = {"kind": "ReplicationController", "metadata": {"name": "rc", "uid": "u"}, "spec": spec}
    found = understand(json.dumps(wire).encode(), OwnerView)
    assert found.value is not None
    assert (found.value.metadata.uid, found.doubts) == ("u", ())


def test_a_field_nobody_needs_costs_nothing() -> None:
    volumes = [{"name": "v", "emptyDir": {"mode": 448, "sizeLimit": 5}}]
    wire = {"metadata": {"name": "p", "uid": "u"}, "spec": {"volumes": volumes}}
    found = understand(json.dumps(wire).encode(), PodView)
    assert found.value is not None
    assert found.value.doubt == ""


def test_a_field_that_is_needed_and_not_understood_is_named() -> None:
    wire = {
        "metadata": {"name": "p", "uid": "u", "labels": {"app": "x", "bad": 5}},
        "spec": {"nodeName": "n0", "volumes": [{"name": 7}, {"name": "w"}], "priority": "high"},
    }
    found = understand(json.dumps(wire).encode(), PodView)
    assert found.value is not None
    assert found.value.metadata.labels == {"app": "x"}
    assert [v.name for v in found.value.spec.volumes] == ["", "w"]
    assert found.value.spec.node_name == "n0"
    for place in ("metadata.labels.bad", "spec.volumes[0].name", "spec.priority"):
        assert place in found.value.doubt


@pytest.mark.parametrize(
    "wire",
    [b"", b"5", b"[]", b"{}", b'{"metadata": 5}', b"\xff", b"[" * 100_000, b'{"a": "\\ud800"}'],
)
def test_an_unreadable_object_is_none_with_a_reason(wire: bytes) -> None:
    found = understand(wire, PodView)
    assert found.value is None
    assert found.doubt


def test_a_doubt_is_not_taken_from_the_wire() -> None:
    wire = b'{"metadata": {"name": "p"}, "doubt": "mine"}'
    found = understand(wire, PodView)
    assert found.value is not None
    assert found.value.doubt == ""


def test_a_health_status_in_doubt_opens_and_closes_nothing() -> None:
    rows = [{"id": 5, "reason": "A", "active": True}]
    wire = {"metadata": {"name": "n0"}, "status": {"incidents": rows}}
    found = understand(json.dumps(wire).encode(), HealthView)
    assert found.value is not None
    assert "cannot be read in full" in staleness(found.value, node(), {}, NOW)


@pytest.mark.parametrize("kind", [NodeView, FreshNode, HealthView, PauseView, PodView])
def test_null_is_a_field_that_is_not_there(kind: type) -> None:
    wire = b'{"metadata": {"name": "x", "labels": null, "creationTimestamp": null}, "spec": null}'
    found: Understood[Any] = understand(wire, kind)
    assert (found.doubts, found.value is not None) == ((), True)


NAMED = b'{"metadata":{"name":"s"},"spec":%s}'


@pytest.mark.parametrize(
    "spec",
    [
        b"[]", b"1", b"null", b'"text"', b"{}", b'{"sha256":1}', b'{"sha256":"x"}',
        b'{"sha256":["x"],"session":{"a":1}}', b'{"session":1e400}',
        b'{"a":' * 500 + b"1" + b"}" * 500,
        b'{"sha256":"' + b"f" * 100_000 + b'"}', b'{"kernelLog":"\\ud800"}',
    ],
)  # fmt: skip
def test_invalid_evidence_is_not_intact(spec: bytes) -> None:
    found = understand(NAMED % spec, EvidenceView).value
    if found is None:
        return
    assert not found.intact
    assert isinstance(found.text_of("session"), str)
    assert isinstance(found.text_of("nodeName"), str)


@pytest.mark.parametrize(
    "note",
    ["", "{", "[]", '{"session":1}', '{"session":"../nodes"}', '{"session":"A B"}',
     '{"session":"s"'
     + " " * 5000 + "}", '{"session":"' + "s" * 300 + '"}'],
)  # fmt: skip
def test_a_note_that_names_no_possible_session_asks_for_no_evidence(note: str) -> None:
    assert session_of({ANNOTATION_SESSION: note}) == ""


def test_it_comes_back_as_it_was_written() -> None:
    since = parse_time("2026-11-23T21:11:00Z")
    status = LeaderStatus(unable="nodes: 403", unable_since=since, last_good="budgit is not known")
    assert leader_status(status.annotations()) == status
    assert LeaderStatus().annotations() == {}
    assert leader_status({"other": "x"}) == LeaderStatus()


def test_what_others_wrote_there_is_bounded_and_printable() -> None:
    status = leader_status({"gpuward.io/unable": "no time\x1b[2J" + "x" * 10_000})
    assert status.unable.startswith("no time\\x1b[2J")
    assert len(status.unable) <= MAX_CLAUSE + 8
    assert status.unable_since is None
    assert leader_status({"gpuward.io/unable": "2026-11-23T21:11:00Z"}).unable == ""
