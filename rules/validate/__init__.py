"""The Job that tests a node, and what its result means."""
