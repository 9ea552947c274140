"""`hack/screenshots`: take the pictures of the review page in the docs, after the demo has ended.

Needs Chromium. The fleet and its times differ from one run to the next, so no check compares the
pictures.
"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from hack.bench.browser import CHROMIUM, Browser
from hack.sim.demo.acts import ACTS
from hack.sim.demo.stage import Stage

IMAGES = Path(__file__).resolve().parents[3] / "docs" / "images"
NODES = 24
TALL = 6000
LOOK: dict[str, Any] = {"width": 1280, "height": 960}
USAGE_ERROR = 64


def main(arguments: list[str] | None = None) -> int:
    """Parse, play, take pictures."""
    parser = argparse.ArgumentParser(prog="hack/screenshots", description=__doc__)
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder (%(default)s)")
    parser.add_argument("--page", metavar="URL", help="the page of a demo that runs already")
    parser.add_argument("--tall", action="store_true", help="full pages, not one screen of each")
    options = parser.parse_args(arguments)
    if CHROMIUM is None:
        print("Chromium is not installed (Debian: apt-get install chromium)", file=sys.stderr)
        return USAGE_ERROR
    options.out.mkdir(parents=True, exist_ok=True)
    asyncio.run(_run(options))
    return 0


async def _run(options: argparse.Namespace) -> None:
    if options.page:
        await _pictures(options.page.rstrip("/"), options.out, tall=options.tall)
        return
    async with Stage(nodes=NODES) as stage:
        first = min(act.at_s for act in ACTS)

        async def play(index: int) -> None:
            await asyncio.sleep(ACTS[index].at_s - first)
            outcome = await ACTS[index].play(stage)
            print(f"{'ok' if outcome.true else 'NOT'}  {ACTS[index].title}", flush=True)

        await asyncio.gather(*(play(index) for index in range(len(ACTS))))
        await _pictures(stage.page_url, options.out, tall=options.tall)


async def _pictures(page: str, out: Path, *, tall: bool) -> None:
    pages = await _pages(page)
    async with Browser() as browser:
        for name, path in pages.items():
            dark = name.endswith("-dark")
            await browser.look(**LOOK, dark=dark)
            await browser.go(f"{page}{path}")
            if tall:
                high = int(await browser.js("document.documentElement.scrollHeight"))
                await browser.look(**{**LOOK, "height": min(high, TALL)}, dark=dark)
            await browser.picture(out / f"page-{name}.png")


async def _pages(page: str) -> dict[str, str]:
    """Name of the picture to path; the node is that of the most urgent open session."""
    async with aiohttp.ClientSession() as plain, plain.get(f"{page}/api/fleet") as answer:
        opened = (await answer.json())["sessions"]
    if not opened:
        return {"fleet-light": "/"}
    node = f"/nodes/{quote(opened[0]['session']['node'], safe='')}"
    # The fleet page is between the two: only another path loads a page.
    return {"node-dark": node, "fleet-light": "/", "incidents-light": f"{node}#incidents-title"}


if __name__ == "__main__":
    raise SystemExit(main())
