"""Scan large kernel logs: unwrap journal JSON and container logs, select lines worth parsing.

`LineScanner` and `worth_parsing` skip only lines for which `rules.kernel_log.parse.parse` returns
None, so the result is the same as parsing every line. Unwrapped lines start with their time if the
container has it. Any bytes are accepted; lines in another format are returned unchanged.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from rules.kernel_log import text

_ANCHORS: Final = re.compile(
    rb"NVRM:|NVSwitch |nvidia-(?:nvswitch|peermem)|nccl\.so|mlx5_|more than "
    rb"\d|pcieport|power state"
    rb"|probe (?:of|with) |PCIe (?:Bus Error|bandwidth, limited)|BUG: "
    rb"soft|DMAR:|IO_PAGE_FAULT|\x1b"
)
"""Every line that `parse` recognizes contains one of these. The cost of a failed search depends on
the first letters, so they have few different ones, capitals where possible."""


def worth_parsing(line: bytes) -> bool:
    """Return whether `parse` may recognize `line`: fast, and never wrongly False."""
    return _ANCHORS.search(line) is not None


T = TypeVar("T")

Read: TypeAlias = Callable[[bytes, int], T | None]
"""Take a line and its number, from 1; return None for a line that is not recognized."""


class LineScanner(Generic[T]):
    """Number the lines of a stream and pass those that `worth` selects to `read`.

    Blocks may have any size; lines end at byte 0x0A only. A line is cut after `longest` bytes, so
    memory stays bounded.
    """

    def __init__(
        self,
        read: Read[T],
        worth: Callable[[bytes], bool] = worth_parsing,
        longest: int = text.MAX_LINE,
    ) -> None:
        self._read = read
        self._worth = worth
        self._longest = longest
        self._tail = b""
        self._ended = 0

    def feed(self, block: bytes) -> list[T]:
        """Return the results of every recognized line that ends in this block."""
        *lines, rest = block.split(b"\n")
        if not lines:
            self._tail = (self._tail + rest)[: self._longest]
            return []
        lines[0] = (self._tail + lines[0])[: self._longest] if self._tail else lines[0]
        self._tail = rest[: self._longest]
        first, self._ended = self._ended + 1, self._ended + len(lines)
        worth, read = self._worth, self._read
        found = (read(line, number) for number, line in enumerate(lines, first) if worth(line))
        return [line for line in found if line is not None]

    @property
    def lines(self) -> int:
        """The number of lines so far, including an unfinished one."""
        return self._ended + bool(self._tail)

    def finish(self) -> list[T]:
        """Return the last line if it has no newline and is recognized."""
        last, self._tail = self._tail, b""
        if not last:
            return []
        self._ended += 1
        line = self._read(last, self._ended) if self._worth(last) else None
        return [line] if line is not None else []


class LogContainer(StrEnum):
    """The format in which the lines of a log are wrapped."""

    PLAIN = "plain"
    JSON = "json"
    CRI = "cri"


LONGEST_ENTRY: Final = 64 * 1024
"""Bytes of a wrapped line that are read: a kernel line with the journal's fields has 2 KiB."""

_CRI: Final = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) std(?:out|err) [FP] "
)
_BARE_LINE: Final = re.compile(rb"[A-Za-z][\w./-]{0,30}(?:\[\d+\])?(?: [\w:.-]{1,40})?: \S")
"""The start of most kernel messages without a prefix: a driver or subsystem, and a device."""


def container_of(head: bytes) -> LogContainer:
    """Return the format of a log that begins with `head`."""
    line = head.lstrip(b"\x1e\r\n\t ")[:LONGEST_ENTRY]
    if line.startswith(b"{"):
        return LogContainer.JSON
    if _CRI.match(line):
        return LogContainer.CRI
    return LogContainer.PLAIN


def understood(line: bytes, container: LogContainer) -> bool:
    """Return whether a line is in a supported format."""
    if container is LogContainer.JSON:
        return unwrapped_json(line) is not line
    if container is not LogContainer.PLAIN:
        return True
    return len(text.split_prefix(line)[0]) < len(line) or _BARE_LINE.match(line) is not None


def worth_unwrapping(line: bytes) -> bool:
    """Return whether a journal entry may contain a recognized line.

    The journal prints a message that is not valid text as a list of numbers.
    """
    return worth_parsing(line) or b'"MESSAGE":[' in line or b'"MESSAGE" : [' in line


def unwrapped_json(line: bytes) -> bytes:
    """Return the message of a journal entry, or of a line of Docker's json-file, with its time."""
    try:
        entry = msgspec.json.decode(line.lstrip(b"\x1e \t"))
    except (msgspec.DecodeError, RecursionError):
        return line
    if not isinstance(entry, dict):
        return line
    if isinstance(log := entry.get("log"), str):
        return log.encode("utf-8", "replace").rstrip(b"\n")
    message = _bytes_of(entry.get("MESSAGE"))
    if message is None:
        return line
    kernel = entry.get("_TRANSPORT") == "kernel"
    return _line(message, str(entry.get("__REALTIME_TIMESTAMP", "")), kernel=kernel)


def unwrapped_cri(line: bytes) -> bytes:
    """Return the line that a container wrote, with the runtime's time if it has none."""
    found = _CRI.match(line)
    if found is None:
        return line
    inner = line[found.end() :]
    if len(text.split_prefix(inner)[0]) < len(inner):
        return inner
    return b"%s node kernel: %s" % (found[1], inner)


UNWRAP: Final[dict[LogContainer, Callable[[bytes], bytes]]] = {
    LogContainer.JSON: unwrapped_json,
    LogContainer.CRI: unwrapped_cri,
}


def _bytes_of(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    if isinstance(value, list) and all(isinstance(v, int) and 0 <= v < 256 for v in value):
        return bytes(value[: text.MAX_LINE])
    return None


def _line(message: bytes, microseconds: str, *, kernel: bool) -> bytes:
    """Return one line in syslog format; the priority shows whether the kernel wrote it."""
    message = message.partition(b"\n")[0]
    priority = b"<6>" if kernel else b"<14>"
    if not (microseconds.isascii() and microseconds.isdecimal()) or len(microseconds) > 17:
        return priority + message
    at = datetime.fromtimestamp(int(microseconds) / 1e6, UTC)
    stamp = at.strftime("%Y-%m-%dT%H:%M:%S.%f+00:00").encode()
    return b"%s%s node kernel: %s" % (priority, stamp, message)
