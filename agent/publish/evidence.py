"""Save evidence: create one GPUEvidence for each quarantine session of this node.

The node watch reports the session. A short-lived thread then reads the kernel log again, builds
the object and creates it. It never delays a health status and keeps nothing in memory between two
sessions.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from agent.publish.client import Kube, KubeError
from rules.api import timestamps
from rules.text import printable

GIVE_UP_S: Final = 900.0
"""Stop retrying after this time: the repair has started, and new readings are of another state."""
FRESH_WITHIN_S: Final = 20.0
"""Time for the GPUs to answer; a repair step waits three times as long."""
_FINAL: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)
"""Status codes that a retry of the same object cannot change."""


class Waits(NamedTuple):
    """Seconds between two attempts, and until the readings are complete."""

    first_retry_s: float = 0.5
    longest_retry_s: float = 30.0
    poll_s: float = 0.5
    settle_s: float = 2.0
    """Time for the rest of the readings to arrive after the first ones."""


WAITS: Final = Waits()


class EvidenceKeeper:
    """Creates the GPUEvidence of a session in a thread of its own.

    `refresh` requests new readings and returns a check whether they have arrived. Then, or after
    `FRESH_WITHIN_S`, `compose` builds the object. `notify` gets a sentence and whether it is a
    success.
    """

    def __init__(
        self,
        api: Kube,
        *,
        compose: Callable[[str], Mapping[str, Any]],
        refresh: Callable[[], Callable[[], bool]] = lambda: lambda: True,
        notify: Callable[[str, bool], None],
        clock: Callable[[], float] = time.monotonic,
        give_up_s: float = GIVE_UP_S,
        waits: Waits = WAITS,
    ) -> None:
        self._api = api
        self._compose = compose
        self._refresh = refresh
        self._notify = notify
        self._clock = clock
        self._give_up_s = give_up_s
        self._waits = waits
        self._session = ""
        self._latest = ""
        """The last session, also after its taint was removed: its evidence is still completed."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def taint_seen(self, session: str) -> None:
        """Start saving evidence if the node has the taint of a new session; "" if it has none."""
        if session == self._session:
            return
        self._session = session
        if session:
            self._latest = session
            # The thread of an earlier session ends by itself.
            self._thread = threading.Thread(
                target=self._keep, args=(session,), name="evidence", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Stop retrying; a call in progress ends with the process."""
        self._stop.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the evidence in progress; used in tests."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _keep(self, session: str) -> None:
        until = self._clock() + self._give_up_s
        failures, reported = 0, ""
        while True:
            why, final = self._attempt(session)
            if not why:
                return
            failures += 1
            over = final or self._clock() >= until
            if why != reported and not over:
                reported = why
                self._notify(
                    f"Cannot save the evidence of session {session}: {why}. Retrying.", False
                )
            if over:
                self._notify(
                    f"Cannot save the evidence of session {session}: {why}. Gave up.", False
                )
                return
            waits = self._waits
            wait_s = timestamps.backoff_s(failures + 1, waits.first_retry_s, waits.longest_retry_s)
            if self._stop.wait(wait_s * random.uniform(0.5, 1.0)) or session != self._session:
                return

    def _await_readings(self, session: str) -> bool:
        """Wait for new readings, since slow ones may be an hour old and a new agent has none.

        An agent that stops does not wait. Return False if a newer session started meanwhile.
        """
        done = self._refresh()
        until = self._clock() + FRESH_WITHIN_S
        while not done() and self._clock() < until and session == self._latest:
            if self._stop.wait(self._waits.poll_s):
                break
        if session == self._latest:
            self._stop.wait(self._waits.settle_s)
        return session == self._latest

    def _attempt(self, session: str) -> tuple[str, bool]:
        """Create the object and return why that failed and whether the failure is final.

        The text is empty if the object exists or is no longer wanted.
        """
        try:
            if self._api.has_evidence(session):
                return "", True
            if not self._await_readings(session):
                return "", True
            self._api.create_evidence(self._compose(session))
        except KubeError as error:
            if error.status == HTTPStatus.CONFLICT:
                return "", True
            if error.status == HTTPStatus.NOT_FOUND:
                return "the cluster has no GPUEvidence CRD: apply the CRDs of gpuward", False
            return str(error), error.status in _FINAL
        except Exception as error:  # noqa: BLE001 - an error here must not stop the agent
            return f"a bug in gpuward ({printable.place_of(error)}), please report it", True
        self._notify(f"Saved the evidence of session {session}.", True)
        return "", True
