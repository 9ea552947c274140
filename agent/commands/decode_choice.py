"""Which findings of a log are shown: since when, how grave, one by one or summed up.

Called by `agent.commands.decode` for every line that could matter. Imports `rules` only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

import msgspec

from rules.catalog.reason import Severity
from rules.catalog.xid import reason_for_kernel_line
from rules.kernel_log.parse import parse
from rules.kernel_log.stamps import Stamp, stamp_of

_DURATION: Final = re.compile(r"(\d{1,6})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MOST_GROUPS: Final = 4096
"""A hostile log can name any number of devices; what comes later is counted as one."""

Read: TypeAlias = Callable[[bytes, int], bytes | None]
"""One raw line and its number in; what is printed of it out, None for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the user asked for; None or False where nothing was asked."""

    since: float | None = None
    least: Severity | None = None
    fail_on: Severity | None = None
    summary: bool = False

    @property
    def any(self) -> bool:
        """Whether a line must be judged to know if it is shown."""
        return self != Choice()


@dataclass(slots=True)
class _Group:
    action: str
    count: int = 0
    first: str = ""
    last: str = ""


class Chosen:
    """A reader around `read`, which is given only the lines that were asked for."""

    def __init__(
        self, read: Read, choice: Choice, *, driver: int | None, as_json: bool, now: float
    ) -> None:
        self.failed = False
        self._read = read
        self._choice = choice
        self._driver = driver
        self._as_json = as_json
        self._now = now
        self._groups: dict[tuple[str, str, str], _Group] = {}

    def __call__(self, raw: bytes, number: int) -> bytes | None:
        """What is printed, or None."""
        return self._read(raw, number) if self._wanted(raw) else None

    @property
    def reader(self) -> Read:
        """What reads each line: no more than `read` itself where nothing was asked for."""
        return self if self._choice.any else self._read

    def _wanted(self, raw: bytes) -> bool:
        line = parse(raw)
        if line is None:
            return False
        choice, stamp = self._choice, stamp_of(raw, self._now)
        if choice.since is not None and stamp.wall is not None and stamp.wall < choice.since:
            return False
        reason = reason_for_kernel_line(line, self._driver)
        severity = reason.severity if reason else None
        if choice.least is not None and (severity is None or severity < choice.least):
            return False
        grave = choice.fail_on is not None and severity is not None and severity >= choice.fail_on
        # Anybody may write to the kernel log; what is said of the driver by others fails nothing.
        self.failed = self.failed or (grave and not line.user)
        if not choice.summary:
            return True
        name = reason.reason if reason else str(line.kind)
        action = f"{reason.level}, {reason.action}" if reason else ""
        self._count(line.pci or "", str(severity or "Record"), name, action, stamp)
        return False

    def _count(self, pci: str, severity: str, name: str, action: str, stamp: Stamp) -> None:
        key = (pci, severity, name)
        if key not in self._groups and len(self._groups) >= _MOST_GROUPS:
            key, action = ("", "Record", "others"), ""
        group = self._groups.setdefault(key, _Group(action))
        group.count += 1
        text = stamp.text.decode()
        group.first = group.first or text
        group.last = text or group.last

    def summary(self) -> Iterator[bytes]:
        """One line for each device and reason, the gravest first."""
        order = {str(severity): -number for number, severity in enumerate(Severity)}
        for (pci, severity, name), group in sorted(
            self._groups.items(), key=lambda item: (order.get(item[0][1], 1), item[0])
        ):
            if self._as_json:
                yield (
                    msgspec.json.encode(
                        {
                            "pci": pci or None,
                            "severity": severity,
                            "reason": name,
                            "count": group.count,
                            "first": group.first or None,
                            "last": group.last or None,
                        }
                    )
                    + b"\n"
                )
                continue
            does = f" -> {group.action}" if group.action else ""
            span = f" ({group.first} to {group.last})" if group.first else ""
            yield f"{group.count} x {pci or '-'} {severity} {name}{does}{span}\n".encode()


def since_of(text: str, now: float) -> float | None:
    """The time that `--since` names: 90m, 24h, 7d back, or an ISO time; None for neither."""
    if found := _DURATION.fullmatch(text):
        return now - int(found[1]) * _SECONDS[found[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None
