"""The running agent: one queue of facts, one loop that judges, then publishing and metrics."""
