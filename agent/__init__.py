"""The node agent: collect GPU signals, assess them with `rules`, and publish the node's health."""
