"""The running agent: facts in through one inbox, one loop that judges, verdicts out to publishing
and metrics.
"""
