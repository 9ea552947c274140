"""A simulated Kubernetes control plane on a real port, for the demo, tests and benchmarks.

Import the server from `server` (or `threaded`), a client from `inprocess` or `http_client`
and resources from `resource`; this module itself loads nothing heavy.
"""

from __future__ import annotations

from hack.sim.cluster.clients.client import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    ApiError,
    Client,
    Resource,
)

__all__ = [
    "JSON_PATCH",
    "MERGE_PATCH",
    "STRATEGIC_MERGE_PATCH",
    "ApiError",
    "Client",
    "Resource",
]
