"""Log lines as JSON on standard error, one object a line, for a cluster's log collector.

Called once by `run`. No secret, token or whole object may be logged anywhere.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import structlog

# Made once: `json.dumps` makes a new one for each line.
_ENCODER = json.JSONEncoder(default=repr)


def _encoded(said: Any, **_: Any) -> bytes:
    return _ENCODER.encode(said).encode()


def configure_logs() -> None:
    """Set up structlog for the process."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_encoded),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # One write a line: in a storm there are thousands.
        logger_factory=structlog.BytesLoggerFactory(file=sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )
