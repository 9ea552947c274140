"""Fleets of GPU nodes and their workloads."""
