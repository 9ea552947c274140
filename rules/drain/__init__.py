"""Decide which pods of a node are evicted next, which stay, and what blocks the rest."""
