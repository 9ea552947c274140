"""What preflight looks at, beside the cluster itself: this installation and its adapters."""
