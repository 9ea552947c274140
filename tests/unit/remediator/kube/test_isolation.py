"""Unexpected errors are logged and counted; the part starts again and the others continue."""

import ast
import asyncio
import itertools
import json
from pathlib import Path

import aiohttp
import pytest
import structlog

import remediator
from remediator.controller.fleet import Fleet
from remediator.kube.answer import Answer, ApiError
from remediator.kube.isolation import PARTS, Isolation
from rules.api import writes as d
from rules.api.quarantine import Mode
from rules.fleet.turns import judge_fleet
from rules.policy.policy import Policy
from rules.session.decide import decide
from rules.session.observation import Unjudged
from tests.support.remediator.edge import QUARANTINES, edge
from tests.support.remediator.edge_world import cycle_of, edge_world, open_session
from tests.support.remediator.virtual_clock import VirtualClock


async def test_a_part_starts_again_with_back_off_and_is_counted() -> None:
    clock = VirtualClock()
    counted: list[str] = []
    began: list[float] = []
    isolation = Isolation(clock, counted.append)

    async def part() -> None:
        began.append(clock.elapsed())
        if len(began) == 12:
            raise asyncio.CancelledError
        if len(began) % 2:
            raise OverflowError("a year too far")

    with structlog.testing.capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await isolation.keep("housekeeping", part)
    waits = [b - a for a, b in itertools.pairwise(began)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.5, 60.0)
    assert counted == ["housekeeping"] * 11
    assert "OverflowError in test_isolation.py" in logs[0]["error"]
    assert "a year too far" not in logs[0]["error"]


@pytest.mark.parametrize(
    "error",
    [
        *(
            ApiError(Answer(code=code))
            for code in (0, 403, 404, 409, 410, 429, 500, 502, 503, 504)
        ),
        TimeoutError(),
        ConnectionResetError(),
        aiohttp.ServerDisconnectedError(),
        aiohttp.ClientPayloadError(),
    ],
    ids=str,
)
async def test_a_refusal_or_a_broken_connection_is_expected_in_every_part(error) -> None:
    counted: list[str] = []
    isolation = Isolation(VirtualClock(), counted.append)
    with structlog.testing.capture_logs() as logs:
        for part in PARTS:
            with isolation.guard(part, "x"):
                raise error
    assert not counted
    assert [line["event"] for line in logs] == ["tried again later"] * len(PARTS)


def test_an_answer_that_cannot_be_read_is_not_expected() -> None:
    counted: list[str] = []
    with Isolation(VirtualClock(), counted.append).guard("watch", "x"):
        raise ApiError(Answer(code=200), "the API server sent an unreadable object")
    assert counted == ["watch"]


def test_a_guard_lets_a_cancellation_pass() -> None:
    isolation = Isolation(VirtualClock())
    with isolation.guard("watch", "x"):
        raise ValueError
    with pytest.raises(asyncio.CancelledError), isolation.guard("watch", "x"):
        raise asyncio.CancelledError


def test_every_part_in_the_code_is_counted_from_zero() -> None:
    named = {
        str(call.args[0].value)
        for file in Path(remediator.__file__).parent.rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call)
        and getattr(call.func, "attr", getattr(call.func, "id", "")) in {"guard", "keep", "note"}
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }
    assert sorted(PARTS) == sorted(named)


@pytest.fixture
async def setting(tmp_path):
    async with edge(tmp_path) as cluster:
        for name in ("n1", "n2"):
            await cluster.add_node(name)
        async with edge_world(cluster, Policy(mode=Mode.ENFORCE)) as found:
            yield found


async def test_an_unexpected_error_in_a_check_is_reported_in_the_session(setting) -> None:
    counted: list[str] = []
    broken = [True]

    def stumbles(*arguments):
        if broken:
            raise ZeroDivisionError("secret text")
        return decide(*arguments)

    cycle = cycle_of(setting, counted, decide=stumbles)
    await open_session(setting, "n1")
    result = await cycle.check("n1")
    assert result.evicting is d.Evicting.NO
    assert (result.again_in_s or 0) >= 5
    session = await setting.client.get(QUARANTINES, "s-n1")
    logs = {c["type"]: c for c in session["status"]["conditions"]}
    assert logs["Blocked"]["reason"] == logs["NeedsHuman"]["reason"] == "UnexpectedError"
    assert "ZeroDivisionError in test_isolation.py" in logs["Blocked"]["message"]
    assert "secret text" not in json.dumps(session)
    assert counted == ["node_check"]
    await cycle.check("n1")
    assert counted == ["node_check"], "not before its time, whatever wakes the node"
    broken.clear()
    setting.cluster.clock.ahead_s += 60
    await cycle.check("n1")
    session = await setting.client.get(QUARANTINES, "s-n1")
    assert "UnexpectedError" not in json.dumps(session)


async def test_a_rule_that_never_comes_to_rest_does_not_patch_for_ever(setting) -> None:
    counted: list[str] = []
    await open_session(setting, "n1")
    levels = iter(["Cordon", "Drain"] * 1000)

    def restless(session, seen, now, policy):
        version = session.metadata.resource_version
        write = d.PatchSessionSpec(
            name=session.name, node="n1", resource_version=version, level=next(levels)
        )
        return d.Decision(step="Restless", writes=(write,))

    cycle = cycle_of(setting, counted, decide=restless)
    for _ in range(50):
        await cycle.check("n1")
    patches = [w for w in setting.cluster.writes() if w == ("patch", "gpuquarantines")]
    assert len(patches) < 20
    assert counted == ["node_check"]


async def test_a_session_that_the_fleet_rules_stumble_over_holds_up_no_other(setting) -> None:
    for node in ("n1", "n2"):
        await open_session(setting, node)

    def stumbles(snapshot, memory=None):
        if "s-n1" in snapshot.counted:
            raise KeyError("s-n1")
        return judge_fleet(snapshot, memory)

    counted: list[str] = []
    fleet = Fleet(setting.edge(counted.append), wake=lambda node: None, judge=stumbles)
    assert fleet.permit("s-n2").unjudged is None
    assert fleet.permit("s-n1").unjudged is Unjudged.FLEET
    assert counted == ["fleet"]
