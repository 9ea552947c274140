"""Publish the health status to Kubernetes: the API client, and writes of Node, GPUNodeHealth,
Events and GPUEvidence that retry by themselves.
"""
