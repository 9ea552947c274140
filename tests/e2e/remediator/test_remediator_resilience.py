"""A real remediator process on bad days: another leader, an outage, lost rights, wrong input."""

import asyncio
import urllib.error
import urllib.request

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import LEASES
from tests.support.remediator.kubectl_cluster import run_command
from tests.support.remediator.remediator_process import (
    QUICK,
    RemediatorProcess,
    leads,
    phase,
    running,
    sessions,
)

TIMEOUT_S = 90


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def wait_for_log(one: RemediatorProcess, expected: str) -> None:
    """Wait until the log has the text."""
    async with asyncio.timeout(TIMEOUT_S):
        while not one.logged(expected):  # noqa: ASYNC110 - a file's lines
            await asyncio.sleep(0.05)


async def is_unready(one: RemediatorProcess, expected: str) -> None:
    """Wait until its probe reports that reason; it stays unready all the time."""
    await wait_for_log(one, '"event": "started"')
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            status, why = await asyncio.to_thread(fetch, f"http://127.0.0.1:{one.port}/readyz")
            assert status == 503
            if expected in why:
                return
            await asyncio.sleep(0.05)


async def test_the_other_replica_takes_over_a_session_where_the_first_left_it(fleet, tmp_path):
    one = RemediatorProcess(tmp_path, fleet.plane.kubeconfig, name="one", isolated=True)
    two = RemediatorProcess(tmp_path, fleet.plane.kubeconfig, name="two")
    with running(one, two):
        await fleet.until(
            lambda: asyncio.to_thread(lambda: one.logged("leading") or two.logged("leading")),
            "a leader",
        )
        first, second = (one, two) if one.logged('"leading"') else (two, one)
        await fleet.health.fail("gpu-0001", XID_79)
        session = await phase(fleet, "gpu-0001", "Quarantined")
        assert not second.logged("CreateSession")
        assert await asyncio.to_thread(first.stop) == 0
        await leads(fleet, second.name)
        await fleet.health.healthy("gpu-0001")
        released = await phase(fleet, "gpu-0001", "Released")
        assert released["metadata"]["uid"] == session["metadata"]["uid"]
        assert len(await sessions(fleet, "gpu-0001")) == 1


async def test_s43_expired_watches_and_refused_calls_lose_nothing(fleet, tmp_path):
    faults = fleet.plane.faults
    with running(RemediatorProcess(tmp_path, fleet.plane.kubeconfig)):
        await leads(fleet, "one")
        agent = "gpuward-remediator"
        broken = ApiError(503, "ServiceUnavailable", "injected by the test")
        faults.fail(broken, path="/api", agent=agent, times=8)
        faults.expire_watches()
        await fleet.health.fail("gpu-0001", XID_79)
        await phase(fleet, "gpu-0001", "Quarantined")
        lost = faults.fail(
            ApiError(504, "Timeout", "it happened all the same"),
            method="PATCH",
            path="/api/v1/nodes/gpu-0002",
            agent=agent,
            after=True,
        )
        await fleet.health.fail("gpu-0002", XID_79)
        await phase(fleet, "gpu-0002", "Quarantined")
        assert lost.hits == 1
        assert len(await sessions(fleet, "gpu-0002")) == 1


async def test_a_policy_is_reloaded_and_a_broken_one_is_not_believed(fleet, tmp_path):
    one = RemediatorProcess(tmp_path, fleet.plane.kubeconfig, policy="mode: Shadow\n")
    with running(one):
        await leads(fleet, "one")
        one.new_policy("mode: Enforce\nbudgets: {}\n")
        await fleet.until(
            lambda: asyncio.to_thread(one.logged, "budgets is not a known key"),
            "the problem named",
        )
        _, page = await asyncio.to_thread(fetch, f"http://127.0.0.1:{one.port}/metrics")
        assert "gpuward_policy_reload_ok 0.0" in page
        assert "gpuward_enforcing 0.0" in page
        one.new_policy(QUICK)
        await fleet.health.fail("gpu-0001", XID_79)
        session = await phase(fleet, "gpu-0001", "Quarantined")
        assert session["status"]["mode"] == "Enforce"


async def test_missing_definitions_are_named_with_the_remedy(tmp_path):
    from hack.sim.control_plane import control_plane

    async with control_plane() as plane:
        one = RemediatorProcess(tmp_path, plane.kubeconfig)
        with running(one):
            await wait_for_log(one, "gpuquarantines.gpuward.io is missing")
            await is_unready(one, "kubectl apply -k daemonset/crds")


async def kubectl(fleet, *expected: str) -> str:
    """What an operator is reported, standard output and error together, in one line."""
    place = ("--kubeconfig", str(fleet.plane.kubeconfig))
    _, out, err = await asyncio.to_thread(run_command, *expected, *place)
    return " ".join((out + err).split())


async def lease_has(fleet, key: str, expected: str) -> None:
    """Wait until its Lease reports it; "" for nothing."""

    async def found_there() -> bool:
        lease = await fleet.client.get(LEASES, "gpuward-remediator", "gpuward")
        found = (lease["metadata"].get("annotations") or {}).get(key, "")
        return expected in found if expected else not found

    await fleet.until(found_there, f"{key} of the Lease: {expected or 'nothing'}")


async def test_why_fleet_and_list_report_a_leader_without_rights(fleet, tmp_path):
    forbidden = ApiError(403, "Forbidden", 'cannot create resource "gpuquarantines"')
    with running(RemediatorProcess(tmp_path, fleet.plane.kubeconfig)):
        await leads(fleet, "one")
        lost = fleet.plane.faults.fail(
            forbidden,
            method="POST",
            path="/gpuquarantines",
            agent="gpuward-remediator",
            times=None,
        )
        await fleet.health.fail("gpu-0001", XID_79)
        await lease_has(fleet, "gpuward.io/unable", "the remediator may not open a session")
        why = await kubectl(fleet, "why", "gpu-0001")
        assert "nothing: the leading remediator cannot act (for" in why
        assert "the remediator may not open a session for the node (403" in why
        assert "after it can act: a session opens within seconds" in why
        assert "the leader of gpuward-remediator cannot act" in await kubectl(fleet, "fleet")
        assert "leads and cannot act" in await kubectl(fleet, "preflight")
        lost.times = 0
        await phase(fleet, "gpu-0001", "Quarantined")
        await lease_has(fleet, "gpuward.io/unable", "")
