"""The fleet benchmark: percentiles, calls from an audit log, its table and its command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from hack.bench import audit, fleet
from hack.sim.control_plane import ASSETS

BEGAN = 1_800_000_000.0
_MINUTE = "2027-01-15T08:00"


def event(verb: str, uri: str, second: float = 1, **changed: Any) -> str:
    """A line of an audit log: received at this second after `BEGAN`, answered 5 ms later."""
    resource, _, subresource = uri.partition("?")[0].rpartition("/v1/")[2].partition("/x/")
    return json.dumps(
        {
            "stage": "ResponseComplete",
            "verb": verb,
            "requestURI": uri,
            "objectRef": {"resource": resource, "subresource": subresource},
            "responseStatus": {"code": 200},
            "requestReceivedTimestamp": f"{_MINUTE}:{second:09.6f}Z",
            "stageTimestamp": f"{_MINUTE}:{second + 0.005:09.6f}Z",
            **changed,
        }
    )


def test_percentiles_are_by_nearest_rank() -> None:
    assert fleet.percentiles(map(float, range(200, 0, -1))) == {
        "p50": 101, "p99": 199, "max": 200, "nodes": 200,
    }  # fmt: skip
    assert fleet.percentiles([3.0]) == {"p50": 3.0, "p99": 3.0, "max": 3.0, "nodes": 1}
    assert fleet.percentiles([]) == {"nodes": 0}


def test_calls_are_counted_by_verb_and_resource_with_time_and_refusals() -> None:
    lines = [
        event("patch", "/api/v1/nodes/x/"),
        event("create", "/api/v1/pods/x/eviction"),
        event("create", "/api/v1/pods/x/eviction", responseStatus={"code": 429}),
    ]
    found = [one._replace(mean_ms=round(one.mean_ms, 1)) for one in audit.calls(lines)]
    assert found == [
        audit.Calls("create", "pods/eviction", 2, 5.0, 1),
        audit.Calls("patch", "nodes", 1, 5.0, 0),
    ]


def test_a_list_from_the_cache_is_apart_from_a_consistent_one() -> None:
    lines = [
        event("list", "/api/v1/pods?limit=250"),
        event("list", "/api/v1/pods?limit=250&resourceVersion=7"),
    ]
    found = {one.resource for one in audit.calls(lines)}
    assert found == {"pods", "pods, cached"}


def test_a_watch_counts_once_and_when_it_starts() -> None:
    lines = [
        event("watch", "/api/v1/pods?watch=true", stage="ResponseStarted"),
        event("watch", "/api/v1/pods?watch=true", stage="ResponseComplete"),
    ]
    assert [(one.verb, one.number) for one in audit.calls(lines)] == [("watch", 1)]


def test_earlier_calls_and_those_for_the_lease_are_left_out() -> None:
    lines = [
        event("get", "/api/v1/nodes", second=1),
        event("get", "/api/v1/nodes", second=3),
        event("update", "/api/v1/leases", second=3),
    ]
    assert [one.number for one in audit.calls(lines, BEGAN + 2)] == [1]


def test_the_table_has_the_latency_of_each_stage_and_the_calls_per_session() -> None:
    figures = {
        "faults": 10,
        "remediator CPU s": 1.234,
        "stages": {
            "taint and cordon": {"p50": 0.2, "p99": 0.25, "max": 0.26, "nodes": 10},
            "pods gone": {"nodes": 0},
        },
        "calls": [audit.Calls("patch", "nodes", 25, 12.34, 1)._asdict()],
    }
    assert [line.split() for line in fleet.table(figures).splitlines()] == [
        ["faults", "10"],
        ["remediator", "CPU", "s", "1.23"],
        [],
        ["seconds", "after", "detection", "P50", "P99", "max", "nodes"],
        ["taint", "and", "cordon", "0.20", "0.25", "0.26", "10"],
        ["pods", "gone", "-", "-", "-", "0"],
        [],
        ["API", "calls", "number", "a", "session", "mean", "ms", "refused"],
        ["patch", "nodes", "25", "2.50", "12.3", "1"],
    ]


def test_the_api_server_logs_the_calls_of_the_remediator_only(tmp_path: Path) -> None:
    flags = audit.server_flags(tmp_path, "someone")
    assert f"--audit-log-path={audit.log_of(tmp_path)}" in flags
    rules = json.loads((tmp_path / "audit-policy.json").read_text())["rules"]
    assert rules == [{"level": "Metadata", "users": ["someone"]}, {"level": "None"}]


@pytest.mark.parametrize(
    "options", [["--nodes=5", "--faults=6"], ["--nodes=5", "--faults=5", "--failover"]]
)
def test_more_faults_than_nodes_are_refused(options: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fleet.parse(options)
    assert ended.value.code == 2


def test_a_missing_assets_folder_is_named(monkeypatch, capsys) -> None:
    monkeypatch.delenv(ASSETS, raising=False)
    assert fleet.main([]) == 2
    assert f"{ASSETS} is not set" in capsys.readouterr().err
