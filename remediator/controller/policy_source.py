"""Load and reload the policy file; publish the leader's own problems as annotations on its Lease.

The file is read at the start and whenever it changes. If it is missing or invalid at the start,
the mode is Shadow, flagged as unintended (`rules.policy.policy`), and sessions wait. If it is
invalid at a reload, the last good policy stays in effect and the replica reports the problem.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from remediator import policy_file
from remediator.kube.clock import Clock
from remediator.metrics import Metrics
from rules.api import timestamps
from rules.api.nodes import LeaderStatus
from rules.api.quarantine import Mode
from rules.catalog.why_not import Refusal
from rules.policy.policy import Policy, UnreadPolicy, by_accident, with_installed, with_mode

_LOG = structlog.get_logger()

# A ConfigMap volume changes at most every few seconds; a check is one stat call.
_CHECK_EVERY_S = 1.0


class PolicySource:
    """The policy in effect."""

    def __init__(
        self,
        path: str | None,
        *,
        shadow: bool,
        metrics: Metrics,
        on_change: Callable[[Policy], None],
        builtin_validation: bool = False,
    ) -> None:
        self.problems: list[str] = []
        """What is wrong with the file now; empty when it is in effect."""
        self._last_good = False
        """Whether the file was valid once since the start."""
        self._wrong_at: float | None = None
        """Since when the file is invalid, in the API server's time; None if it never was valid."""
        self._path = Path(path) if path else None
        self._shadow = shadow
        self._builtin_validation = builtin_validation
        self._metrics = metrics
        self._on_change = on_change
        self._stamp: tuple[int, int, int] | None = None
        self._policy = Policy()

    @property
    def policy(self) -> Policy:
        """The policy in effect."""
        return self._policy

    @property
    def mode(self) -> Mode:
        """The mode in effect; --shadow overrides the file."""
        return self._policy.mode

    @property
    def trouble(self) -> str:
        """The problem of the file and which policy is in effect instead; "" if the file is
        valid.
        """
        if not self.problems:
            return ""
        then = "this replica has read no policy since it started and runs in Shadow mode"
        if self._wrong_at is not None:
            then = (
                f"this replica uses the last valid policy since {timestamps.utc(self._wrong_at)}"
            )
        if by_accident(self._policy):
            then += ": failed nodes are not quarantined"
        return f"{self.wrong}; {then}."

    @property
    def wrong(self) -> str:
        """The first problem of the file, a clause; "" if the file is valid."""
        if not self.problems:
            return ""
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        return f"{self.problems[0]}{more}"

    @property
    def unread(self) -> bool:
        """Whether the mode is Shadow only because no policy could be read."""
        return by_accident(self._policy)

    def start(self) -> None:
        """Read the file for the first time."""
        if self._path is None:
            _LOG.info("policy", message="no --policy FILE was given: mode Shadow, default limits")
        self._read(first=True)

    async def watch(self, clock: Clock) -> None:
        """Read the file again whenever it changed, until cancelled."""
        while True:
            await clock.sleep(_CHECK_EVERY_S)
            self.reload(clock)

    def reload(self, clock: Clock) -> None:
        """Read the file again if it changed."""
        if self._path is None or self._stamp_now() == self._stamp:
            return
        self._read(first=False)
        if not self.problems:
            self._wrong_at = None
        elif self._wrong_at is None and self._last_good:
            self._wrong_at = clock.now()

    def _read(self, *, first: bool) -> None:
        self._stamp = self._stamp_now()
        found = policy_file.read_policy(self._path) if self._path is not None else Policy()
        if isinstance(found, Policy):
            self.problems = []
            self._last_good = True
            self.use(found, first=first)
        else:
            self.problems = found
            after = (
                "the last valid policy stays in effect" if self._last_good else "mode is Shadow"
            )
            for problem in found:
                _LOG.error("policy", problem=problem, next=after)
            if first:
                # With `--shadow`, mode Shadow is intended even without a valid file.
                self.use(Policy() if self._shadow else UnreadPolicy(), first=True)
        self._metrics.policy_reload_ok.set(0 if self.problems else 1)

    def use(self, policy: Policy, *, first: bool = False) -> None:
        """Put the policy into effect; on the `first` one, `on_change` is not called."""
        if self._shadow:
            policy = with_mode(policy, Mode.SHADOW)
        policy = with_installed(policy, validate=self._builtin_validation)
        changed = policy != self._policy
        self._policy = policy
        self._metrics.enforcing.set(1 if Mode.ENFORCE in policy.modes else 0)
        self._metrics.policy_unread.set(1 if by_accident(policy) else 0)
        if changed or first:
            _LOG.info("policy", mode=policy.mode.value, source=str(self._path or "defaults"))
        if changed and not first:
            self._on_change(policy)

    def _stamp_now(self) -> tuple[int, int, int] | None:
        if self._path is None:
            return None
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size


_LASTS_S: Final = 5.0
"""Problems shorter than this, such as a repeated list, are not published."""


class LeaderReport:
    """Annotations of the Lease: since when this replica cannot act, and its policy problem.

    The Lease stays writable even if the ClusterRoleBinding is deleted, because a Role of the own
    namespace grants it.
    """

    def __init__(
        self,
        clock: Clock,
        unable: Callable[[], str],
        missing_session_right: Callable[[], Refusal | None],
        policy: PolicySource,
    ) -> None:
        """`unable` returns why no node can be changed now, "" while it can.
        `missing_session_right` returns the missing right that no session status can report.
        """
        self._clock = clock
        self._unable = unable
        self._missing_session_right = missing_session_right
        self._policy = policy
        self._since: float | None = None

    def annotations(self) -> dict[str, str]:
        """The annotations for the Lease as of now."""
        refused, now = self._missing_session_right(), self._clock.now()
        why = _clause(self._unable()) or (refused.why if refused is not None else "")
        self._since = None if not why else now if self._since is None else self._since
        lasts = self._since is not None and now - self._since >= _LASTS_S
        wrong = self._policy.wrong
        return LeaderStatus(
            unable=why if lasts else "",
            unable_since=self._since,
            unread=wrong if self._policy.unread else "",
            last_good="" if self._policy.unread else wrong,
        ).annotations()


def _clause(sentence: str) -> str:
    """The sentence as a clause: with a lower-case first letter, except for abbreviations."""
    named = sentence[1:2].isupper()  # an abbreviation keeps its capitals
    return sentence if named else f"{sentence[:1].lower()}{sentence[1:]}"
