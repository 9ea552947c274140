"""The control loop: decide about each node, drain it, and keep records, leases and tests of new
nodes.
"""
