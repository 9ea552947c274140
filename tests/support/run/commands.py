"""A command of gpuward as a test runs it without a process of its own."""

from collections.abc import Callable, Sequence


def exit_status(main: Callable[[list[str]], int], arguments: Sequence[str]) -> int:
    """What the program would end with."""
    try:
        return main(list(arguments))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
