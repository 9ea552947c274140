"""Commands of operators and Jobs: check, decode, explain, reset GPUs, restart the node."""
