"""Entry point of the NVML child: `python -m agent.nvml.child MODE SECONDS GOE`, with three pipes.

Started by `link`. It calls nvmlShutdown and exits when it is asked to, or when its standard input
closes. It imports as little as possible (no logging, metrics or Kubernetes), because it always
runs on every GPU node.
"""

import os
import signal
import sys
from typing import Any

GROUP = "gpuward.simulator"
"""Entry point group of the simulated driver; only a checkout has one."""
SIMULATED = "sim:"
"""Prefix of a mode that names a node description."""
ORDERS, REPORTS, ERRORS = 0, 1, 2


def simulated_driver() -> Any:
    """Return the module that simulates the driver.

    It has `install(path)` for the calls of NVML, `NodeFile(path)` for the description, and
    `functions_of` and `host_of` for the machine. Raises ImportError outside a checkout.
    """
    # Imported here: entry points would cost a child on a real node a megabyte.
    from importlib.metadata import entry_points
    from pathlib import Path

    # A console script has its own folder on the path instead of its checkout.
    checkout = Path(__file__).parents[2]
    if (checkout / "pyproject.toml").is_file() and str(checkout) not in sys.path:
        sys.path.append(str(checkout))
    for found in entry_points(group=GROUP):
        return found.load()
    raise ImportError(f"no package has an entry point in {GROUP}")


def main(mode: str, poll_s: float, goe: str = "off") -> int:
    """Run the child on standard input and output and return its exit status.

    `mode` is `real` or `sim:FILE`; `poll_s` is the period of the fastest polling tier; `goe` is
    `auto` or `off`.
    """
    for ignored in (signal.SIGINT, signal.SIGTERM):
        # The parent gets these signals too and decides when the child ends.
        signal.signal(ignored, signal.SIG_IGN)
    from agent.nvml.life import Child

    reports = os.dup(REPORTS)
    # Output of a library must not corrupt the message stream.
    os.dup2(ERRORS, REPORTS)
    jitter = int.from_bytes(os.urandom(4), "big") / (1 << 32)
    child = Child(ORDERS, reports, jitter, poll_s, goe=goe == "auto")
    try:
        if mode.startswith(SIMULATED):
            # The agent reads the same file at its start and reports errors.
            simulated_driver().install(mode.removeprefix(SIMULATED))
        return child.run()
    except BrokenPipeError:
        # The parent has ended: exit without nvmlShutdown.
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), sys.argv[3]))
