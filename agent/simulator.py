"""The one door to a simulated driver: whatever a checkout offers under an entry point of this
group.

Called for `--nvml sim:FILE` only. An installation from a wheel and the
image offer none.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

GROUP: Final = "gpuward.simulator"
SIMULATED: Final = "sim:"
"""How the name of a description begins where a driver may be named."""


def simulated_driver() -> Any:
    """The module that simulates the driver.

    It has `install(path)` for the calls of NVML, `NodeFile(path)` for the description, and
    `functions_of`, `minors_of` and `host_of` for the machine around it. Raises ImportError where
    there is none.
    """
    # A console script has its own folder on the path, and not the checkout it was installed from.
    checkout = Path(__file__).parents[1]
    if (checkout / "pyproject.toml").is_file() and str(checkout) not in sys.path:
        sys.path.append(str(checkout))
    for found in entry_points(group=GROUP):
        return found.load()
    raise ImportError(f"nothing is installed under the entry points {GROUP}")
