"""The node agent: senses, judges with `rules`, and publishes metrics, labels, conditions,
health.
"""
