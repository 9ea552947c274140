"""What has to end with a test, though no fixture made it. `tests/conftest.py` ends it."""

from collections.abc import Callable

_ENDINGS: dict[Callable[[], None], None] = {}


def at_the_end(end: Callable[[], None]) -> None:
    """Call this when the test is over."""
    _ENDINGS[end] = None


def has_ended(end: Callable[[], None]) -> None:
    """It was called before."""
    _ENDINGS.pop(end, None)


def end_all() -> None:
    """Call all of them, the last made first."""
    while _ENDINGS:
        end, _ = _ENDINGS.popitem()
        end()
