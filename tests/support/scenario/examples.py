"""How many examples a property gets: few in every run, many times as many where time allows."""

import os
from typing import Final

TIMES: Final = int(os.environ.get("GPUWARD_EXAMPLES", "1"))
"""Set by .ci/run for its slow half; `GPUWARD_EXAMPLES=50 hack/test tests/property` searches
longer.
"""


def examples(quick: int) -> int:
    """`quick` examples, or so many times as many."""
    return quick * TIMES
