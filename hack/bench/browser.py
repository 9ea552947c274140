"""A headless Chromium driven over its DevTools protocol: the review page as people see it.

Nothing but aiohttp's websocket client: no driver program, no package. Every request that the page
makes is kept, so that a test can say that none left the machine.
"""

import asyncio
import base64
import contextlib
import itertools
import shutil
import tempfile
from asyncio.subprocess import DEVNULL
from pathlib import Path
from typing import Any, Self

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
TIMEOUT_S = 30.0
START_S = 60.0
"""The longest start that counts as one on a loaded machine; then Chromium is started once more."""
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


class Browser:
    """`async with Browser() as browser`: one empty page."""

    def __init__(self) -> None:
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        self._loaded = asyncio.Event()
        self.requests: list[str] = []
        """Address of every request of every page."""
        self.complaints: list[str] = []
        """Messages of the console and of the content security policy."""

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except TimeoutError:
            await self._start()
        return self

    async def _start(self) -> None:
        assert CHROMIUM is not None
        self._folder = Path(tempfile.mkdtemp(prefix="gpuward-chromium-"))
        self._process = await asyncio.create_subprocess_exec(
            CHROMIUM,
            *_FLAGS,
            f"--user-data-dir={self._folder}",
            "about:blank",
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            start_new_session=True,
        )
        self._http = aiohttp.ClientSession()
        try:
            page = await self._page_address()
            self._socket = await self._http.ws_connect(page, max_msg_size=0)
            self._reader = asyncio.create_task(self._read())
            for domain in ("Page", "Network", "Runtime", "Log"):
                await self.send(f"{domain}.enable")
        except BaseException:
            await self._end()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        await self._socket.close()
        await self._end()

    async def _end(self) -> None:
        await self._http.close()
        self._process.terminate()
        try:
            async with asyncio.timeout(10):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _page_address(self) -> str:
        async with asyncio.timeout(START_S):
            port_file = self._folder / "DevToolsActivePort"
            # Chromium writes its port into this file.
            while not (port_file.exists() and port_file.read_text().strip()):  # noqa: ASYNC110 (see above)
                await asyncio.sleep(0.05)
            port = port_file.read_text().split()[0]
            while True:
                async with self._http.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    pages = [one for one in await answer.json() if one["type"] == "page"]
                if pages:
                    return str(pages[0]["webSocketDebuggerUrl"])
                await asyncio.sleep(0.05)

    async def _read(self) -> None:
        async for received in self._socket:
            message = received.json()
            if "id" in message:
                waiting = self._answers.pop(message["id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
                continue
            match message.get("method"):
                case "Network.requestWillBeSent":
                    self.requests.append(message["params"]["request"]["url"])
                case "Network.webSocketCreated":
                    self.requests.append(message["params"]["url"])
                case "Page.loadEventFired":
                    self._loaded.set()
                case "Log.entryAdded":
                    self.complaints.append(str(message["params"]["entry"].get("text")))
                case "Runtime.exceptionThrown":
                    self.complaints.append(str(message["params"]["exceptionDetails"]))

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol; its result."""
        number = next(self._numbers)
        waiting = asyncio.get_running_loop().create_future()
        self._answers[number] = waiting
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(TIMEOUT_S):
            message: dict[str, Any] = await waiting
        assert "error" not in message, message
        result: dict[str, Any] = message["result"]
        return result

    async def go(self, address: str) -> None:
        """Open an address and wait until it is loaded."""
        self._loaded.clear()
        await self.send("Page.navigate", url=address)
        await self._until_loaded()

    async def click(self, selector: str) -> None:
        """Follow a link."""
        self._loaded.clear()
        await self.js(f"document.querySelector({selector!r}).click()")
        await self._until_loaded()

    async def _until_loaded(self) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await self._loaded.wait()

    async def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        result = await self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def text(self, selector: str) -> str:
        """Everything an operator can read in the element."""
        return str(await self.js(f"document.querySelector({selector!r})?.innerText ?? ''"))

    async def until(self, expression: str, within_s: float = TIMEOUT_S) -> None:
        """Wait until the expression is true in the page."""
        async with asyncio.timeout(within_s):
            # The page has no event for this.
            while not await self.js(expression):  # noqa: ASYNC110 (see above)
                await asyncio.sleep(0.1)

    async def look(self, *, width: int, height: int, dark: bool, phone: bool = False) -> None:
        """Take another window size and colour scheme."""
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self, path: Path) -> None:
        """Write a screenshot of the window."""
        shot = await self.send("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))
