"""PromQL that dashboards share: growth of counters whose series begin with their first event."""

from __future__ import annotations


def grown(counter: str, by: str, over: str, *, watched: str, on: str = "") -> str:
    """By how much a counter grew within `over`, by these labels.

    `increase` misses the first event of a counter that has no series while it is 0. Here what has
    no past counts from 0, if `watched` (a selector, matched on `on`) had a series then: not what
    an agent finds when it begins. After a reset it counts from 0 as well.
    """
    now, then = f"sum by ({by}) ({counter})", f"sum by ({by}) ({counter} offset {over})"
    from_zero = f"0 * {now} and on ({on}) ({watched} offset {over})"
    return f"({now} - (({then} <= {now}) or ({from_zero})))"
