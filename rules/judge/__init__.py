"""Turn facts about one node into incidents, its health status, and the objects it publishes."""
