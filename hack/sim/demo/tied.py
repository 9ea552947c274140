"""`python -m hack.sim.demo.tied PID MODULE ARGUMENT...`: MODULE, for as long as its parent PID
lives.

The kernel ends it then, also where the parent was killed with -9 and could end nobody.
"""

import ctypes
import os
import runpy
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Tie, then become the module."""
    parent, module, *arguments = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        raise SystemExit(0)  # it ended before it could be asked to tell
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
