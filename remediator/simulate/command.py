"""`gpuward-remediator simulate`: called by `remediator.cli`, ends with an exit status."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from remediator.settings import fail
from remediator.simulate.compare import SEEDS, TRACE_NODES, compare
from rules.simulate.truth.trace import TraceError


def run(parsed: argparse.Namespace) -> int:
    """Do what was asked for; 64 with one sentence where it cannot be done."""
    try:
        text = compare(
            Path(parsed.compare_trace),
            parsed.nodes or TRACE_NODES,
            parsed.seeds or SEEDS,
            as_json=parsed.json,
        )
    except TraceError as error:
        return fail(str(error))
    sys.stdout.write(text)
    return 0
