"""Log lines as JSON on standard error, one object a line, for a cluster's log collector.

Called once by `run`. No secret, token or whole object may be logged anywhere.
"""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logs() -> None:
    """Set up structlog for the process."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    # The client library logs configuration problems that come back as our own sentences.
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)
