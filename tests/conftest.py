"""What holds for every test: properties have no time limit, a busy machine fails nothing, a run in
the background is like one in a terminal, and programs in Go that live for a second do not save
memory.
"""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.endings import end_all

pytest_plugins = ["tests.support.run.workers"]

settings.register_profile("gpuward", deadline=None)
settings.load_profile("gpuward")

# What a shell starts in the background ignores SIGINT, and so would the programs that tests start
# and end by Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A quarter of what promtool and kubectl compute is their collector of garbage.
os.environ.setdefault("GOGC", "400")


@pytest.fixture(autouse=True)
def _everything_ends() -> Iterator[None]:
    yield
    end_all()
