"""Ways to reach a control plane: in process, over HTTP."""
