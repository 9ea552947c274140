"""Probes, metrics and logs of the running remediator."""
