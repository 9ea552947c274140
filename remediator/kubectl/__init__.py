"""`kubectl gpuward`: the SRE's hands. Runs by itself too, as `kubectl-gpuward`."""
