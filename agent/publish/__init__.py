"""Publish to Kubernetes: the API client and the writers of Node status, GPUNodeHealth, Events and
GPUEvidence, which retry failed writes.
"""
