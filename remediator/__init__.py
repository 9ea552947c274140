"""The cluster remediator: verdicts in, quarantine sessions out.

One leader-elected Deployment that marks, drains, quarantines and releases GPU nodes. Decisions are
pure functions in `rules`; this package observes, sends and reports.
"""
