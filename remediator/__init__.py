"""The cluster remediator: health statuses in, quarantine sessions out.

One leader-elected Deployment that taints and cordons, drains, quarantines and releases GPU nodes.
Decisions are pure functions in `rules`; this package observes, sends and reports.
"""
