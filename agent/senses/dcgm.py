"""Scrapes a dcgm-exporter of this node, carefully: bounded in time and size, never believed
blindly.

One thread. Each good page becomes a fact; a failing scrape makes the source Down, which says
nothing about any GPU. Whether a page is this node's at all is judged in `rules`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import urllib3

from agent.senses.dcgm_page import read_page
from rules.judge.observation import DcgmSeen, SourceChanged, SourceName, SourceState

SCRAPE_EVERY_S = 15.0
SCRAPE_WITHIN_S = 2.0
MAX_PAGE_BYTES = 8 * 1024 * 1024
CHUNK_BYTES = 64 * 1024

NO_ANSWER = "NoAnswer"
REFUSED = "Refused"
TOO_SLOW = "TooSlow"
TOO_LARGE = "TooLarge"
EMPTY_PAGE = "EmptyPage"


class ScrapeError(Exception):
    """No page; the text is a CamelCase reason."""


class DcgmScraper:
    """The scraping thread; `put` receives its facts."""

    def __init__(
        self,
        url: str,
        put: Callable[[DcgmSeen | SourceChanged], None],
        *,
        user_agent: str,
        every_s: float = SCRAPE_EVERY_S,
    ) -> None:
        self._url = url
        self._every_s = every_s
        self._put = put
        self._pool = urllib3.PoolManager(maxsize=1, retries=False)
        self._headers = {"User-Agent": user_agent, "Accept": "text/plain"}
        self._reason: str | None = None
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="dcgm", daemon=True)
        self.bad_lines = 0

    def start(self) -> None:
        """Begin to scrape."""
        self._thread.start()

    def scrape_now(self) -> None:
        """Do not wait for the next turn."""
        self._wake.set()

    def close(self) -> None:
        """Ask the thread to end; a scrape in progress ends within seconds."""
        self._stopping = True
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            self.scrape_once()
            self._wake.wait(self._every_s)

    def scrape_once(self) -> None:
        """One scrape and what follows from it; one that does not come back is said meanwhile."""
        # Reading its headers has a limit for each piece only: nobody may sit there unseen.
        overdue = threading.Timer(2 * SCRAPE_WITHIN_S, self._say, (SourceState.DOWN, TOO_SLOW))
        overdue.daemon = True
        with contextlib.suppress(RuntimeError):
            # No more threads now (EAGAIN): the scrape itself is not kept waiting.
            overdue.start()
        try:
            self._scrape()
        finally:
            overdue.cancel()

    def _scrape(self) -> None:
        try:
            text = self._fetch()
            seen, bad_lines = read_page(text, time.time())
            self.bad_lines += bad_lines
            if not seen.gpus:
                raise ScrapeError(EMPTY_PAGE)
        except ScrapeError as error:
            self._say(SourceState.DOWN, str(error))
            return
        self._say(SourceState.UP, "")
        self._put(seen)

    def _say(self, state: SourceState, reason: str) -> None:
        if reason != self._reason:
            self._reason = reason
            self._put(
                SourceChanged(at=time.time(), source=SourceName.DCGM, state=state, reason=reason)
            )

    def _fetch(self) -> str:
        """The page. Bounded in total time too: an exporter may trickle for ever."""
        deadline = time.monotonic() + SCRAPE_WITHIN_S
        timeout = urllib3.Timeout(connect=SCRAPE_WITHIN_S, read=SCRAPE_WITHIN_S)
        try:
            response = self._pool.request(
                "GET",
                self._url,
                headers=self._headers,
                timeout=timeout,
                preload_content=False,
                redirect=False,
            )
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise ScrapeError(NO_ANSWER) from error
        whole = False
        try:
            if response.status != 200:
                raise ScrapeError(REFUSED)
            page = bytearray()
            while chunk := response.read1(CHUNK_BYTES):
                page += chunk
                if len(page) > MAX_PAGE_BYTES:
                    raise ScrapeError(TOO_LARGE)
                if time.monotonic() > deadline:
                    raise ScrapeError(TOO_SLOW)
            whole = True
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ScrapeError(TOO_SLOW) from error
        finally:
            # A connection with an unread rest must not be used again.
            response.release_conn() if whole else response.close()
        return page.decode("utf-8", "replace")
