"""A whole log in any format that is read, from its first to its last line.

`gpuward-agent decode` prints what it finds; `agent.kernel_log.past` judges it. The format is told
by the log's beginning; see `agent.kernel_log.unpack` and `rules.kernel_log.containers`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

from agent.kernel_log.unpack import unpacked
from rules.kernel_log.containers import (
    JSON_ANCHORS,
    LONGEST_ENTRY,
    UNWRAP,
    ExportEntries,
    LogContainer,
    container_of,
    understood,
)
from rules.kernel_log.scan import ANCHORS, LineScanner, Read

T = TypeVar("T")

BLOCK: Final = 1 << 16
"""Larger ones are slower: each costs fresh pages of memory and falls out of the caches."""

SAMPLE: Final = 1 << 14
"""Bytes in which lines must be understood where the whole log said nothing."""

LEAST_SHARE: Final = 0.25
"""Of them: some lines of any prose or YAML read like the kernel's; of a log nearly all do."""


class WholeLog(Generic[T]):
    """Reads a log once; `lines` and `understood` are known at its end.

    `read` gets one line without its wrapping, and its number.
    """

    def __init__(self, read: Read[T]) -> None:
        self._read = read
        self.lines = 0
        self.understood = True

    def findings(self, blocks: Iterable[bytes]) -> Iterator[list[T]]:
        """What is found, as it is found. Raises OSError for damaged data."""
        texts = unpacked(blocks)
        first = next(texts, b"")
        container = container_of(first)
        scanner = self._scanner(container)
        entries = ExportEntries() if container is LogContainer.EXPORT else None
        found = scanner.feed(entries.feed(first) if entries else first)
        some = bool(found)
        yield found
        for text in texts:
            found = scanner.feed(entries.feed(text) if entries else text)
            some = some or bool(found)
            yield found
        found = scanner.feed(entries.finish()) if entries else []
        self.lines = scanner.lines
        found += scanner.finish()
        known = some or bool(found) or _is_a_log(first[:SAMPLE], container)
        self.understood = known or not first.strip()
        yield found

    def _scanner(self, container: LogContainer) -> LineScanner[T]:
        if container is LogContainer.PLAIN:
            return LineScanner(self._read)
        anchors = JSON_ANCHORS if container is LogContainer.JSON else ANCHORS
        unwrap = UNWRAP.get(container)
        read = self._read
        inner = read if unwrap is None else lambda raw, number: read(unwrap(raw), number)
        return LineScanner(inner, anchors, LONGEST_ENTRY)


def _is_a_log(sample: bytes, container: LogContainer) -> bool:
    lines = [line for line in sample.split(b"\n") if line.strip()]
    known = sum(understood(line, container) for line in lines)
    return bool(known) and known >= LEAST_SHARE * len(lines)


def blocks_of(descriptor: int) -> Iterator[bytes]:
    """What a descriptor holds, as it comes: findings of a live log appear at once."""
    while True:
        try:
            block = os.read(descriptor, BLOCK)
        except BrokenPipeError:
            continue  # /dev/kmsg: records were overwritten before they were read
        if not block:
            return
        yield block
