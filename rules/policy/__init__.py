"""Read and check the operator's policy; fill in defaults, or list errors with their paths."""
