"""Repair a drained node: request a step, follow it, and end it."""
