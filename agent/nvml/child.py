"""The NVML child's entry: `python -m agent.nvml.child MODE SECONDS`, with three pipes and nothing
else.

Started by `link`. It ends when it is asked to, or when its standard input closes, and calls
nvmlShutdown first. It imports next to nothing (no logging, metrics or Kubernetes): this process
runs on every GPU node for ever.
"""

import os
import signal
import sys
from typing import Any

GROUP = "gpuward.simulator"
"""Entry points under which a checkout offers a simulated driver; a wheel and the image none."""
SIMULATED = "sim:"
"""How the name of a description begins where a driver may be named."""
ORDERS, REPORTS, ERRORS = 0, 1, 2


def simulated_driver() -> Any:
    """The module that simulates the driver.

    It has `install(path)` for the calls of NVML, `NodeFile(path)` for the description, and
    `functions_of` and `host_of` for the machine around it. Raises ImportError where
    there is none.
    """
    # Imported here: entry points cost a child that meets a real driver a megabyte for nothing.
    from importlib.metadata import entry_points
    from pathlib import Path

    # A console script has its own folder on the path, and not the checkout it was installed from.
    checkout = Path(__file__).parents[2]
    if (checkout / "pyproject.toml").is_file() and str(checkout) not in sys.path:
        sys.path.append(str(checkout))
    for found in entry_points(group=GROUP):
        return found.load()
    raise ImportError(f"nothing is installed under the entry points {GROUP}")


def main(mode: str, poll_s: float) -> int:
    """Run the child in this mode (`real` or `sim:FILE`) on standard input and output.

    `poll_s` is the period of the fastest polling tier.
    """
    for ignored in (signal.SIGINT, signal.SIGTERM):
        # The parent says when to end: it gets these signals too, and knows what hangs.
        signal.signal(ignored, signal.SIG_IGN)
    from agent.nvml.life import Child

    reports = os.dup(REPORTS)
    # A library that prints must not garble the stream.
    os.dup2(ERRORS, REPORTS)
    jitter = int.from_bytes(os.urandom(4), "big") / (1 << 32)
    child = Child(orders=ORDERS, reports=reports, jitter=jitter, poll_s=poll_s)
    try:
        if mode.startswith(SIMULATED):
            # Whether it can be is reported at the agent's start, which reads the machine from it
            # too.
            simulated_driver().install(mode.removeprefix(SIMULATED))
        return child.run()
    except BrokenPipeError:
        # The parent is gone. Leaving NVML by process exit is all that is left to do.
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
