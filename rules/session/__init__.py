"""Decide the next writes for one node: the state machine of a quarantine session."""
