"""Validate a repaired node: test under load, the wait for `healthyFor`, release."""
