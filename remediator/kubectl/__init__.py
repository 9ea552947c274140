"""`kubectl gpuward`: the commands for operators. Also runs as `kubectl-gpuward`."""
