"""One opened file that others write to: what was added since, in whole lines, and whether it is
still the same text.

Used by `agent.kernel_log.file`, which follows the name. Nothing here knows about records.
"""

from __future__ import annotations

import os
import stat

from agent.kernel_log.record import MAX_RECORD_BYTES

REMEMBERED_BYTES = 256
"""The end of what was read is compared before more is read: records hold their number and time,
so a text that was cut and grew again differs there."""


class Lines:
    """Cuts chunks into whole lines; a line beyond the bound is skipped and counted."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False
        self.oversized = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Every line that `chunk` completes."""
        *whole, rest = (self._rest + chunk).split(b"\n")
        if whole and self._skipping:
            del whole[0]
            self._skipping = False
        if len(rest) > MAX_RECORD_BYTES:
            self.oversized += not self._skipping
            self._skipping, rest = True, b""
        self._rest = rest
        return whole

    def forget(self) -> None:
        """The text was replaced: what is left of its last line will never be completed."""
        self._rest, self._skipping = b"", False


class FollowedFile:
    """A descriptor of a file or FIFO, how far it was read, and its unfinished line.

    Raises OSError from the constructor when it cannot be opened, and from any call when the file
    system went away.
    """

    def __init__(self, path: str) -> None:
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self.fifo = stat.S_ISFIFO(os.stat(path).st_mode)  # noqa: PTH116 - the agent's reader speaks in descriptors throughout
        # A FIFO opened for writing too does not end when its last writer leaves.
        self.fd = os.open(path, flags | (os.O_RDWR if self.fifo else os.O_RDONLY))
        self.lines = Lines()
        self.position = 0
        self._end = b""
        self._looked_at = (-1, -1)

    @property
    def size(self) -> int:
        """How many bytes the file holds now."""
        return os.fstat(self.fd).st_size

    def is_named(self, path: str) -> bool:
        """Whether `path` names this file. Raises OSError when it names nothing."""
        named, ours = os.stat(path), os.fstat(self.fd)  # noqa: PTH116 - compared with a descriptor
        return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)

    def began_anew(self) -> bool:
        """Whether the file was cut and written again, though it may be longer than before.

        If so, reading begins again at its start.
        """
        if self.fifo:
            return False
        seen = os.fstat(self.fd)
        looked_at = (seen.st_size, seen.st_mtime_ns)
        if looked_at == self._looked_at:
            return False
        self._looked_at = looked_at
        start = self.position - len(self._end)
        if seen.st_size >= self.position and (
            os.pread(self.fd, len(self._end), start) == self._end
        ):
            return False
        os.lseek(self.fd, 0, os.SEEK_SET)
        self.position, self._end = 0, b""
        self.lines.forget()
        return True

    def read(self, most: int) -> bytes:
        """The next bytes, empty at the end of what there is."""
        try:
            chunk = os.read(self.fd, most)
        except BlockingIOError:
            return b""
        self.position += len(chunk)
        self._end = (self._end + chunk[-REMEMBERED_BYTES:])[-REMEMBERED_BYTES:]
        return chunk

    def close(self) -> None:
        """Release the descriptor."""
        os.close(self.fd)
