"""The process that tests one GPU: `python -m agent.validate.worker MODE`, orders in, answers out.

Started by `crew`. It ends when its standard input closes; a call that hangs in the driver hangs
nobody else.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, BinaryIO

import msgspec

from agent.simulator import SIMULATED, simulated_driver
from agent.validate import cuda, messages
from agent.validate.affinity import move_near
from agent.validate.device import Device


def main(mode: str) -> int:
    """Serve orders with this driver (`real` or `sim:FILE`) until there are no more."""
    # The parent says when to end; a Ctrl-C reaches it as well.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    # A library that prints must not garble the answers.
    os.dup2(2, 1)
    try:
        library = library_of(mode)
    except (OSError, ImportError, ValueError) as error:
        words = " ".join(str(error).split())[:300]
        answers.write(
            messages.line(messages.Unusable(f"the CUDA driver cannot be used here: {words}"))
        )
        return messages.EXIT_UNUSABLE
    serve(library, sys.stdin.buffer, answers)
    return 0


def library_of(mode: str) -> Any:
    """The library to call. Raises OSError, ImportError or ValueError where there is none."""
    if not mode.startswith(SIMULATED):
        return cuda.load()
    return simulated_driver().cuda_library(mode.removeprefix(SIMULATED))


def serve(library: Any, orders: BinaryIO, answers: Any) -> None:
    """Do what each line says and answer it."""
    at_hand = Hands(library)
    for order in orders:
        try:
            answer = at_hand.obey(msgspec.json.decode(order, type=messages.Order))
        except cuda.CudaError as error:
            answer = messages.Trouble(error.call, error.code, error.name)
        answers.write(messages.line(answer))


class Hands:
    """The GPU of this process, once it was opened."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._device: Device | None = None

    def obey(self, order: messages.Order) -> messages.Answer:
        """Do one thing. Raises CudaError where the driver refuses."""
        if isinstance(order, messages.Open):
            if order.pci:
                move_near(order.pci)
            self._device = Device(cuda.Cuda(self._library), order.gpu)
            free, total = self._device.memory()
            return messages.Opened(sorted(self._device.seen), free, total)
        if self._device is None:
            raise cuda.CudaError("cuInit", 3, "not begun")
        match order:
            case messages.Remember():
                return messages.Remembered(*self._device.patterns())
            case messages.Copy(to_host, seconds):
                return messages.Copied(self._device.copies(to_host=to_host, seconds=seconds))
            case messages.CopyToPeer(gpu):
                return messages.Copied(self._device.peer(gpu))
            case messages.Burn(seconds):
                return messages.Burned(*self._device.sums(seconds))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
