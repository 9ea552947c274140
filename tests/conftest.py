"""What holds for every test: properties have no time limit, a busy machine fails nothing, and a
run in the background is like one in a terminal.
"""

from __future__ import annotations

import signal

from hypothesis import settings

pytest_plugins = ["tests.support.run.workers"]

settings.register_profile("gpuward", deadline=None)
settings.load_profile("gpuward")

# What a shell starts in the background ignores SIGINT, and so would the programs that tests start
# and end by Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
