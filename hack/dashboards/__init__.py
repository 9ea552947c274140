"""Generates the Grafana dashboards and the Prometheus Operator objects; not in the image or
wheel.
"""
