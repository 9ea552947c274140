"""Tell a file that is not there from one that could not be opened now.

Called by the collectors that read many small files of sysfs and /proc, in which a file that is
gone is ordinary news: a GPU that left the bus, a process that ended.
"""

from __future__ import annotations

import errno

EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Out of file descriptors or of the kernel's memory. Source: open(2), read(2)."""


def is_exhausted(error: BaseException) -> bool:
    """Whether the error is about this process or machine and not about the file."""
    return isinstance(error, OSError) and error.errno in EXHAUSTED


def raise_if_exhausted(error: BaseException) -> None:
    """Raise `error` again where it does not mean that the file is gone."""
    if is_exhausted(error):
        raise error
