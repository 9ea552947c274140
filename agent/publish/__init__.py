"""Publish the verdict to Kubernetes: the API client, and writes of Node, GPUNodeHealth, Events and
GPUEvidence that retry by themselves.
"""
