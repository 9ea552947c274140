"""The cluster remediator: taint and cordon, drain, repair and release failing GPU nodes.

One leader-elected Deployment. Decisions are pure functions in `rules`; this package reads the
cluster, sends the requests and reports the result.
"""
