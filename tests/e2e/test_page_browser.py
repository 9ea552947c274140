"""The review page as an operator uses it: a real Chromium on a running demo with real programs.

`hack/screenshots` renews the pictures under docs/images/.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio

from hack.bench.browser import CHROMIUM, Browser
from hack.sim.demo.acts import protected_pod, row_remap_failure, thermal_slowdown
from hack.sim.demo.stage import Stage

HOSTILE = "<script>document.title='owned'</script>"
HOSTILE_LINE = (
    f"NVRM: Xid (PCI:0000:1b:00): 79, pid=66, name={HOSTILE}, GPU has fallen off the bus."
)
DESKTOP: dict[str, Any] = {"width": 1280, "height": 960}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    """A running fleet: one node drained, one blocked by a PDB, one hot, one with a hostile
    line.
    """
    async with Stage(nodes=24) as running:
        hostile = running.cast.training
        running.agents[hostile].kernel_line(HOSTILE_LINE)
        running.agents[hostile].edit({"gpus": {0: {"lost": True}}})
        outcomes = await asyncio.gather(
            row_remap_failure(running), thermal_slowdown(running), protected_pod(running)
        )
        assert [one.text for one in outcomes if not one.true] == []
        yield running


async def sick_nodes(stage: Stage) -> list[str]:
    address = f"{stage.page_url}/api/fleet"
    async with aiohttp.ClientSession() as plain, plain.get(address) as answer:
        groups: list[dict[str, Any]] = (await answer.json())["sessions"]
    return [name for group in groups for name in group["nodes"]]


@pytest_asyncio.fixture(loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with Browser() as opened:
        await opened.look(**DESKTOP, dark=False)
        yield opened
    assert [one for one in opened.complaints if one] == []
    elsewhere = {
        urlsplit(address).hostname
        for address in opened.requests
        if urlsplit(address).scheme not in {"about", "data"}
    }
    assert elsewhere == {"127.0.0.1"}


@pytest.mark.asyncio(loop_scope="module")
async def test_from_the_fleet_to_the_evidence_and_the_blocking_budget(
    stage: Stage, browser: Browser
) -> None:
    node = stage.cast.protected
    await browser.go(f"{stage.page_url}/")

    square = await browser.js(f"document.querySelector('a.n[href=\"/nodes/{node}\"]').ariaLabel")
    assert square == f"{node}: unhealthy, 7 of 8 GPUs usable, Draining"
    assert "needs operator action" in await browser.text(".part-open")

    await browser.click(f'.part-map a[href="/nodes/{node}"]')
    assert await browser.text("h1") == node
    assert "Xid95" in await browser.text(".part-incidents")

    sessions = await browser.text(".part-sessions")
    assert "name=tritonserver, Uncontained ECC error" in sessions
    assert "PDB serving/solo" in sessions
    assert "waiting cannot help" in sessions
    assert "add a replica" in sessions


@pytest.mark.asyncio(loop_scope="module")
async def test_a_script_in_a_process_name_is_text(stage: Stage, browser: Browser) -> None:
    await browser.go(f"{stage.page_url}/?q={stage.cast.training}")

    assert HOSTILE in await browser.text(".part-sessions code")
    # Once more after the script replaced the parts.
    before = await browser.text("#at")
    await browser.until(f"document.getElementById('at').innerText !== {json.dumps(before)}")
    assert HOSTILE in await browser.text(".part-sessions code")
    assert "owned" not in await browser.js("document.title")
    assert await browser.js("document.querySelectorAll('main script').length") == 0


@pytest.mark.asyncio(loop_scope="module")
async def test_the_page_follows_the_fleet_without_a_reload(stage: Stage, browser: Browser) -> None:
    node = stage.cast.rack[0]
    await browser.go(f"{stage.page_url}/")
    await browser.js("window.same = true")
    square = f"document.querySelector('a.n[href=\"/nodes/{node}\"]').ariaLabel"
    assert f"{node}: healthy" in await browser.js(square)

    await stage.health.no_data(node)

    await browser.until(f"{square}.includes('unknown')")
    assert await browser.js("window.same") is True


@pytest.mark.asyncio(loop_scope="module")
async def test_the_filter_and_the_address_of_a_session_work_without_the_script(
    stage: Stage, browser: Browser
) -> None:
    await browser.send("Emulation.setScriptExecutionDisabled", value=True)
    await browser.go(f"{stage.page_url}/?phase=Draining")
    assert await browser.text("select[name=phase]") != ""
    assert stage.cast.protected in await browser.text(".part-open")
    sick = await sick_nodes(stage)
    assert sick
    for name in sick:
        await browser.go(f"{stage.page_url}/nodes/{name}")

        assert name in await browser.text("h1")
        assert "kubectl gpuward why" in await browser.text(".part-acts")
