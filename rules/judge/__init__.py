"""Facts about one node come in one by one; incidents go out, and what the node publishes of them:
health status, messages, labels, conditions, the health object.
"""
