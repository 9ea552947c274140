"""A simulated Kubernetes control plane on a real port, for the demo, tests and benchmarks.

Import the server from `server` (or `http.threaded`), a client from `clients` and resources from
`resource`; this module itself loads nothing.
"""
