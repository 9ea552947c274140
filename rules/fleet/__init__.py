"""Decide which nodes may be quarantined, drained or repaired now, over the entire fleet."""
