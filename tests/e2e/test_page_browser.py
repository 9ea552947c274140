"""The review page as a person uses it: a real Chromium on a running demo with real programs.

`hack/screenshots` renews the pictures under docs/images/.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio

from hack.bench.browser import CHROMIUM, Browser
from hack.sim.demo.acts import protected_pod, row_remap_failure
from hack.sim.demo.stage import Stage
from hack.sim.demo.wear import thermal_slowdown

HOSTILE = "<script>document.title='owned'</script>"
HOSTILE_LINE = (
    f"NVRM: Xid (PCI:0000:1b:00): 79, pid=66, name={HOSTILE}, GPU has fallen off the bus."
)
DESKTOP: dict[str, Any] = {"width": 1280, "height": 960}
PHONE: dict[str, Any] = {"width": 390, "height": 844, "phone": True}

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


async def open_sessions(stage: Stage) -> list[dict[str, Any]]:
    address = f"{stage.page_url}/api/sessions"
    async with aiohttp.ClientSession() as plain, plain.get(address) as answer:
        found: list[dict[str, Any]] = (await answer.json())["items"]
    return found


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
    assert "needs a person" in await browser.text(".part-open")

    await browser.click(f'.part-map a[href="/nodes/{node}"]')
    assert await browser.text("h1") == node
    assert "Xid95" in await browser.text(".part-incidents")

    await browser.click('.part-history a[href^="/sessions/"]')
    assert "name=tritonserver, Uncontained ECC error" in await browser.text(".part-evidence code")
    blocked = await browser.text(".part-blocked")
    assert "PodDisruptionBudget serving/solo" in blocked
    assert "waiting cannot help" in blocked
    assert "add a replica" in blocked


@pytest.mark.asyncio(loop_scope="module")
async def test_a_script_in_a_process_name_is_text(stage: Stage, browser: Browser) -> None:
    await browser.go(f"{stage.page_url}/find?name={stage.cast.training}")
    await browser.click('.part-history a[href^="/sessions/"]')

    assert HOSTILE in await browser.text(".part-evidence code")
    # Once more after the script replaced the region: ages change every second.
    before = await browser.js("document.getElementById('state').dataset.digest")
    await browser.until(f"document.getElementById('state').dataset.digest !== '{before}'")
    assert HOSTILE in await browser.text(".part-evidence code")
    assert "owned" not in await browser.js("document.title")
    assert await browser.js("document.querySelectorAll('main script').length") == 0


@pytest.mark.asyncio(loop_scope="module")
async def test_the_page_follows_the_fleet_without_a_reload(stage: Stage, browser: Browser) -> None:
    node = stage.cast.rack[0]
    await browser.go(f"{stage.page_url}/")
    await browser.js("window.same = true")
    square = f"document.querySelector('a.n[href=\"/nodes/{node}\"]').ariaLabel"
    assert f"{node}: healthy" in await browser.js(square)

    await stage.health.blind(node)

    await browser.until(f"{square}.includes('unknown')")
    assert await browser.js("window.same") is True


@pytest.mark.asyncio(loop_scope="module")
async def test_the_arrow_keys_walk_the_heat_map(stage: Stage, browser: Browser) -> None:
    await browser.go(f"{stage.page_url}/")
    await browser.until("document.querySelectorAll('a.n[tabindex=\"0\"]').length === 1")

    await browser.js("document.querySelector('a.n').focus()")
    await browser.send("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight")

    walked = "[...document.querySelectorAll('a.n')].indexOf(document.activeElement)"
    assert await browser.js(walked) == 1


@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_is_wider_than_a_phone(stage: Stage, browser: Browser) -> None:
    await browser.look(**PHONE, dark=False)
    paths = (
        "/", "/sessions", "/history", f"/nodes/{stage.cast.protected}",
        "/nodes?health=unhealthy", "/nodes?search=serve",
        "/docs/runbooks/blocked/BudgetNeverAllows.md",
    )  # fmt: skip
    for path in paths:
        await browser.go(stage.page_url + path)

        assert await browser.js("document.documentElement.scrollWidth") <= PHONE["width"], path


@pytest.mark.asyncio(loop_scope="module")
async def test_every_page_reads_whole_without_the_script(stage: Stage, browser: Browser) -> None:
    await browser.send("Emulation.setScriptExecutionDisabled", value=True)
    for row in await open_sessions(stage):
        await browser.go(f"{stage.page_url}/sessions/{row['name']}")

        assert row["message"] in await browser.text(".state")
