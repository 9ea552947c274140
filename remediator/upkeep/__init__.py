"""What goes on beside the sessions: history, silent agents, maintenance leases, the policy
file.
"""
