"""Where an error that nobody foresaw was raised, for a sentence: agent and remediator say it
alike.
"""

from __future__ import annotations

from pathlib import PurePath


def place_of(error: BaseException) -> str:
    """`ValueError in timestamps.py:12`: stable as long as the same thing fails, and none of the
    error's words, which may be those of an object that somebody else wrote.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    file = PurePath(trace.tb_frame.f_code.co_filename).name
    return f"{type(error).__name__} in {file}:{trace.tb_lineno}"
