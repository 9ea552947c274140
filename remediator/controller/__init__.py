"""The control loop: reconcile and drain nodes, validate new ones, write GPU records and Leases."""
