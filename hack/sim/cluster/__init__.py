"""A simulated Kubernetes control plane on a real port, for the demo, tests and benchmarks.

Import the server from `server`, a client from `client` and resources from `resource`; this module
itself loads nothing.
"""
