"""The runbooks as a person reads them: every page in a real Chromium."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from hack.bench.browser import CHROMIUM, Browser
from remediator.page.rendering import runbooks
from remediator.page.site import mount
from tests.support.remediator.page_fleet import FixedSource, state

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


@pytest_asyncio.fixture
async def server() -> AsyncIterator[TestServer]:
    app = web.Application()
    mount(app, FixedSource(state()))
    opened = TestServer(app)
    async with opened:
        yield opened


async def test_a_reader_sees_every_line_of_every_runbook_and_no_escapes(
    server: TestServer,
) -> None:
    async with Browser() as browser:
        for path, text in runbooks().items():
            await browser.go(str(server.make_url(f"/docs/runbooks/{path}")))
            read = await browser.text(".runbook")
            assert r"\x" not in read, path
            assert "&" + "lt;" not in read, path
            for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
                assert block.rstrip("\n") in read, path
            rows = sum(line.startswith("|") for line in text.splitlines())
            shown = await browser.js("document.querySelectorAll('.runbook tr').length")
            separators = len(re.findall(r"^\|[-| ]+\|$", text, re.MULTILINE))
            assert shown == rows - separators, path
            assert await browser.js("document.querySelectorAll('.runbook h1').length") == 1
    assert not [one for one in browser.complaints if one]
