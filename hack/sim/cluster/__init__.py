"""A simulated Kubernetes control plane on a real port, for the demo, tests and benchmarks."""
