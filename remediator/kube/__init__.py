"""Calls to the API server: credentials, rate limits, caches, leadership, and the write gateway."""
