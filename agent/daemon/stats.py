"""Counters and latencies of the agent itself, filled by the main loop, read by the metrics.

One writer (the main loop's thread), one reader (the metrics server); single values only, so no
lock is needed.
"""

from __future__ import annotations

from collections import deque

import msgspec
from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics

# A second series per histogram that says when this process began: process metrics say it too.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types there

LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
MAX_AWAITING = 1024


class XidCounts(msgspec.Struct):
    """Xids and SXids seen, by PCI address and number; bounded, since the lines are hostile."""

    by_pci: dict[tuple[str, str, int], int] = msgspec.field(default_factory=dict)
    limit: int = 2048

    def add(self, kind: str, pci: str, number: int) -> None:
        """Count one line."""
        key = (kind, pci, number)
        if key in self.by_pci or len(self.by_pci) < self.limit:
            self.by_pci[key] = self.by_pci.get(key, 0) + 1


class Latencies:
    """How long a kernel line takes: read to observed, decided, published.

    The steps on the way are measured always and exported in the full set only (`--metrics`).
    """

    def __init__(self, registry: CollectorRegistry, *, full: bool) -> None:
        def histogram(step: str, help_text: str, *, exported: bool = full) -> Histogram:
            return Histogram(
                f"gpuward_kernel_line_{step}_seconds",
                help_text,
                buckets=LATENCY_BUCKETS_S,
                registry=registry if exported else None,
            )

        self.observed = histogram(
            "observed", "From reading a kernel line to the main loop taking it up."
        )
        self.decided = histogram("decided", "From reading a kernel line to its verdict.")
        self.published = histogram(
            "published",
            "From reading a kernel line that changed the verdict to the API server's acceptance.",
            exported=True,
        )
        self._awaiting: deque[tuple[int, float]] = deque(maxlen=MAX_AWAITING)

    def changed_verdict(self, serial: int, line_at: float) -> None:
        """The verdict of this serial number is due to a line read at `line_at` (wall)."""
        self._awaiting.append((serial, line_at))

    def accepted(self, serial: int, at: float) -> None:
        """The API server has this verdict, and with it all earlier ones."""
        while self._awaiting and self._awaiting[0][0] <= serial:
            _, line_at = self._awaiting.popleft()
            self.published.observe(max(0.0, at - line_at))
