"""The JSON objects of `gpuward-agent decode --json`: which keys, from what, how fast.

Called by `agent.commands.decode` for every line that could matter. Every object has every key;
what the line or its prefix does not say is null. Imports `rules` only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from rules.catalog.xid import needed_for, nvidia_buckets, reason_for_kernel_line
from rules.kernel_log.parse import parse_message
from rules.kernel_log.record import KernelLine
from rules.kernel_log.stamps import stamp_of
from rules.kernel_log.text import MAX_LINE, split_prefix

_REMEMBERED: Final = 4096
"""Messages kept with their answer: at most a few megabytes."""

_MISSING: Final = b""
_NO_TIME: Final = b"null"


class Nvidia(msgspec.Struct, frozen=True):
    """NVIDIA's two action buckets for an Xid; empty where the catalog has none."""

    immediate: str
    investigatory: str


class DecodedLine(msgspec.Struct, frozen=True, gc=False):
    """One object of `--json`, keys in this order, `line` (from 1) and `time` before them.

    `kind` is one of `rules.kernel_log.parse.Kind`; `user` is true where the transport says that
    user space wrote the line; `severity`, `reason` and `action` are ours, null for a line
    that only records a fact, and at most what the line alone proves; `needs` is what else
    must be seen before they are more severe, null for nothing; `nvidia` holds NVIDIA's two action
    buckets, null where the catalog does not know the number.
    """

    kind: str
    xid: int | None
    sxid: int | None
    sxid_fatal: bool | None
    pci: str | None
    gpu_uuid: str | None
    mig_gi: int | None
    mig_ci: int | None
    pid: int | None
    process: str | None
    link: int | None
    unit: str | None
    caused_by: int | None
    recovery_from: int | None
    recovery_to: int | None
    user: bool
    text: str
    severity: str | None
    reason: str | None
    action: str | None
    needs: str | None
    nvidia: Nvidia | None


_SHARED: Final = DecodedLine.__struct_fields__.index("text") + 1
"""The fields that a DecodedLine takes over from a KernelLine: the first ones of both."""


def json_reader(driver: int | None, now: float) -> Callable[[bytes, int], bytes | None]:
    """What turns a raw line and its number into its JSON object.

    A fault prints the same message over and over, so the last few thousand messages are
    remembered with what came out; the answer is the same with or without.
    """
    encoded = _Encoder(driver).encoded
    remembered: tuple[dict[bytes, bytes | None], ...] = ({}, {})

    def read(raw: bytes, number: int) -> bytes | None:
        """Return the object, newline included; None for nothing."""
        raw = raw[:MAX_LINE]
        message, user = split_prefix(raw)
        known = remembered[user]
        tail = known.get(message, _MISSING)
        if tail is _MISSING:
            if len(known) >= _REMEMBERED:
                known.clear()
            line = parse_message(message, user=user)
            tail = known[message] = None if line is None else encoded(line)
        if tail is None:
            return None
        stamp = stamp_of(raw, now).text
        at = b'"%s"' % stamp if stamp else _NO_TIME
        return b'{"line":%d,"time":%s,%s' % (number, at, tail)

    return read


class _Encoder:
    """Makes the JSON of a line that was read; most lines of a log mean one of a few things."""

    def __init__(self, driver: int | None) -> None:
        self._driver = driver
        self._encode = msgspec.json.Encoder().encode
        self._verdicts: dict[tuple[Any, ...], _Verdict] = {}

    def encoded(self, line: KernelLine) -> bytes:
        """Everything behind the time, newline included."""
        return self._encode(self._decoded(line))[1:] + b"\n"

    def _decoded(self, line: KernelLine) -> DecodedLine:
        if line.xid is None:
            verdict = _verdict(line, self._driver)
        else:
            same = (line.xid, line.words, line.fatal, line.recovery_to, line.asks)
            known = self._verdicts.get(same)
            verdict = _verdict(line, self._driver) if known is None else known
            if known is None and len(self._verdicts) < _REMEMBERED:
                self._verdicts[same] = verdict
        values: tuple[Any, ...] = (*msgspec.structs.astuple(line)[:_SHARED], *verdict)
        return DecodedLine(*values)


class _Verdict(NamedTuple):
    severity: str | None = None
    reason: str | None = None
    action: str | None = None
    needs: str | None = None
    nvidia: Nvidia | None = None


def _verdict(line: KernelLine, driver: int | None) -> _Verdict:
    reason = reason_for_kernel_line(line, driver)
    buckets = nvidia_buckets(line.xid, line.words) if line.xid is not None else None
    nvidia = Nvidia(*buckets) if buckets else None
    if reason is None:
        return _Verdict(nvidia=nvidia)
    needs = needed_for(line, reason, driver) or None
    return _Verdict(str(reason.severity), reason.reason, str(reason.action), needs, nvidia)
