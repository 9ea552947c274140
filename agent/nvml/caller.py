"""One guarded way into the driver: announce the call, make it, turn failure into a code.

Used by everything in the child that touches pynvml. The announcement is what lets the parent say
which call of which GPU hangs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import pynvml

from agent.nvml.messages import Absent, Calling, Fault, FromChild
from agent.nvml.return_codes import Meaning, meaning

T = TypeVar("T")
Send = Callable[[FromChild], None]


class DriverGoneError(Exception):
    """The driver went away under the process: nothing but a fresh process helps."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} gave {code}")
        self.fault = Fault(call=call, code=code, of_driver=True)


class Failed(NamedTuple):
    """A call that returned an NVML code instead of a result."""

    call: str
    code: int

    @property
    def meaning(self) -> Meaning:
        """What the code says about the GPU or the field."""
        return meaning(self.code)

    @property
    def absent(self) -> Absent:
        """The reading that stands for this failure."""
        return Absent(self.code)


class Caller:
    """Makes calls and tells the parent about each before it is made."""

    def __init__(self, send: Send) -> None:
        self.send = send

    def __call__(
        self, symbol: str, function: Callable[..., T], *arguments: Any, gpu: str = ""
    ) -> T | Failed:
        """The result of `function(*arguments)`, or why there is none.

        Raises DriverGoneError on a code that makes every handle stale.
        """
        self.send(Calling(call=symbol, gpu=gpu))
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            failed = Failed(symbol, int(error.value))
        if failed.meaning is Meaning.DRIVER_GONE:
            raise DriverGoneError(symbol, failed.code)
        return failed

    def text(
        self, symbol: str, function: Callable[..., str], *arguments: Any, gpu: str = ""
    ) -> str:
        """The same for strings: empty where there is none, escaped where it is not UTF-8."""
        result = self(symbol, lambda: text(function, *arguments), gpu=gpu)
        return "" if isinstance(result, Failed) else result

    def number(
        self, symbol: str, function: Callable[..., int], *arguments: Any, gpu: str = ""
    ) -> int | None:
        """The same for numbers: None where there is none."""
        result = self(symbol, function, *arguments, gpu=gpu)
        return None if isinstance(result, Failed) else result


def text(function: Callable[..., str], *arguments: Any) -> str:
    """Call a string getter of pynvml, whose decoding of the driver's bytes may itself fail."""
    try:
        return function(*arguments)
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", "backslashreplace")
