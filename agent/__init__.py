"""The node agent: collectors, judges with `rules`, and publishes metrics, labels, conditions,
health.
"""
