"""How nearly every line of a dense log begins: prefix and stamp taken in one look.

Only saves the time that `split_prefix` and `stamp_of` take one after the other, and answers as
they do; a line that `USUAL` does not match is left to them. `gpuward-agent decode` reads millions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from rules.kernel_log.stamps import since_boot_text, stamp_of
from rules.kernel_log.text import BARE as _BARE

_HEADS: Final = (
    rb"(?=NVRM: |nvidia-nvswitch\d{0,3}: |(?:mlx5_core|pcieport|nvidia|pci) "
    rb"[0-9a-f]{4}:[0-9a-f]{2}:"
    rb"|mlx5_\w{1,40}:\d{1,6}:\(pid \d|nvidia-peermem nv|nvidia: probe of |PCIe Bus Error: "
    rb"|[\w.-]{1,15}\[\d{1,10}\]: segfault at |traps: [\w.-]{1,15}\[\d|INFO: task "
    rb"|(?:NMI )?watchdog: BUG: |AMD-Vi: |DMAR: \[)"
)
"""Beginnings of messages that are no part of any prefix."""
BARE: Final = (*_BARE, b"mlx5_core 0000:", b"pcieport 0000:", b"nvidia 0000:")
"""Some of them in plain bytes, for lines without any prefix."""
_LEVEL: Final = rb"kern {0,8}:[a-z]{3,7} {0,4}: "
_DAY_TIME: Final = rb"[A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d"
_RING: Final = (
    rb"\[(?: *(\d{1,12}\.\d{1,9})| *\+\d{1,12}\.\d{1,9}|\.\.\.)\](?: ?\[ {0,8}[TC]\d{1,10}\])? "
)
_TAG: Final = rb"(?:[a-z][\w.-]{0,63}+ )?kernel: (?:" + _RING.replace(b"(\\d", b"(?:\\d") + rb")?"

USUAL: Final = re.compile(
    rb"(?:\[ *+(\d{1,12}+\.\d{1,9}+)\] "
    rb"|\[[A-Z][a-z]{2} (" + _DAY_TIME + rb" \d{4})\] (?:" + _TAG + rb")?"
    rb"|[0-7],\d{1,20},(\d{1,18})(?:,[^;\n\\]{0,64})?;(?=[^\\]*\Z)"
    rb"|(?:" + _LEVEL + rb")?(" + _DAY_TIME + rb") " + _TAG
    + rb"|(?:(?:" + _LEVEL
    + rb")?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?(Z|[+-]\d\d:?\d\d)"
    rb"|(\d{10})\.\d{1,9}) (?:" + _TAG + rb")?"
    rb"||" + _TAG + rb"|(?:<[0-7]>|" + _LEVEL + rb")?" + _RING + rb")" + _HEADS
)  # fmt: skip
"""Never written by user space. The last group that matched says which stamp it is; the first and
the last are the same one, bare and with more around it."""
SINCE_BOOT: Final = 1
_RECORD, _DAY, _ISO, _ZONE, _EPOCH, _RINGED = range(3, 9)


class UsualStamps:
    """Stamps of lines that USUAL matches, as `stamp_of` gives them, put into `form`; bounded."""

    __slots__ = ("_form", "_none", "_seconds", "_since_boot")

    def __init__(self, now: float, form: bytes = b"%s", none: bytes = b"") -> None:
        self._form = form
        self._none = none
        self._since_boot = form % b"+%s"

        def second(stamp: bytes) -> bytes:
            text = stamp_of(stamp, now).text
            return form % text if text else none

        self._seconds: Callable[[bytes], bytes] = lru_cache(maxsize=1024)(second)

    def of(self, found: re.Match[bytes]) -> bytes:
        """The stamp of a line by its match; `none` where it has none."""
        kind = found.lastindex
        if kind in (SINCE_BOOT, _RINGED):
            return self._since_boot % found[kind]
        if kind is None:
            return self._none
        if kind == _RECORD:
            return self._form % since_boot_text(found[_RECORD])
        if kind == _ZONE:
            return self._seconds(found[_ISO] + found[_ZONE])
        if kind == _EPOCH:
            return self._seconds(found[_EPOCH] + b".0 ")
        return self._seconds(found[kind])
