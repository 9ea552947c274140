"""Keeps evidence: one GPUEvidence for each session whose quarantine appears on this node.

The node watch says which session that is; a short-lived thread then reads the kernel log once
more, builds the object and creates it. It never delays a health status and keeps nothing in memory
between two sessions.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from agent.publish.client import Kube, KubeError
from rules.api import timestamps
from rules.text import printable

FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 30.0
GIVE_UP_S: Final = 900.0
"""Whoever repairs the node has begun by then; what is asked of it later is of another time."""
SIGHT_S: Final = 20.0
"""How long the GPUs may take to answer; a repair step waits three times as long."""
SIGHT_LOOK_S = 0.5
SETTLE_S = 2.0
"""The rest of the readings follows the first ones."""
_FINAL: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)
"""Answers that the same object gets again however often it is sent."""


class EvidenceKeeper:
    """`compose` builds the object for a session after `look`, which asks for fresh readings and
    answers with what says that they came (or after `SIGHT_S`); `tell` gets a sentence and whether
    it is good news. Both are called from a thread of this class.
    """

    def __init__(
        self,
        api: Kube,
        *,
        compose: Callable[[str], Mapping[str, Any]],
        look: Callable[[], Callable[[], bool]] = lambda: lambda: True,
        tell: Callable[[str, bool], None],
        clock: Callable[[], float] = time.monotonic,
        give_up_s: float = GIVE_UP_S,
    ) -> None:
        self._api = api
        self._compose = compose
        self._look = look
        self._tell = tell
        self._clock = clock
        self._give_up_s = give_up_s
        self._session = ""
        self._latest = ""
        """The session quarantined last, also after its taint and cordon came off: what was begun
        for it is ended.
        """
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def taint_seen(self, session: str) -> None:
        """The node carries the taint and cordon of this session; "" where it carries none."""
        if session == self._session:
            return
        self._session = session
        if session:
            self._latest = session
            # Who keeps evidence of a session before this one ends by itself.
            self._thread = threading.Thread(
                target=self._keep, args=(session,), name="evidence", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Try no further; a call under way ends with the process."""
        self._stop.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the evidence under way, for tests and drills."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _keep(self, session: str) -> None:
        until = self._clock() + self._give_up_s
        failures, said = 0, ""
        while True:
            why, final = self._attempt(session)
            if not why:
                return
            failures += 1
            over = final or self._clock() >= until
            if why != said and not over:
                said = why
                self._tell(f"evidence of session {session} is not kept yet: {why}", False)
            if over:
                self._tell(f"no evidence of session {session} is kept: {why}", False)
                return
            wait_s = timestamps.backoff_s(failures + 1, FIRST_RETRY_S, LONGEST_RETRY_S)
            if self._stop.wait(wait_s * random.uniform(0.5, 1.0)) or session != self._session:
                return

    def _await_sight(self, session: str) -> bool:
        """Read everything again: the slow readings may be an hour old, and an agent that has just
        started has none. An agent that ends waits no longer and keeps what it has. False when the
        node was quarantined for another session meanwhile.
        """
        done = self._look()
        until = self._clock() + SIGHT_S
        while not done() and self._clock() < until and session == self._latest:
            if self._stop.wait(SIGHT_LOOK_S):
                break
        if session == self._latest:
            self._stop.wait(SETTLE_S)
        return session == self._latest

    def _attempt(self, session: str) -> tuple[str, bool]:
        """Create it; ("", ...) when it is there or not wanted any more, else why it is not there
        and whether that is final.
        """
        try:
            if self._api.has_evidence(session):
                return "", True
            if not self._await_sight(session):
                return "", True
            self._api.create_evidence(self._compose(session))
        except KubeError as error:
            if error.status == HTTPStatus.CONFLICT:
                return "", True
            if error.status == HTTPStatus.NOT_FOUND:
                return "the cluster has no GPUEvidence: apply the CRDs of gpuward", False
            return str(error), error.status in _FINAL
        except Exception as error:  # noqa: BLE001 - a verdict must not suffer from its evidence
            return f"a defect of gpuward ({printable.place_of(error)}): please report it", True
        self._tell(f"evidence of session {session} is kept", True)
        return "", True
