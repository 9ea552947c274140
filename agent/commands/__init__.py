"""Commands that a person or a Job runs: check this machine, decode a kernel log, explain an Xid,
reset GPUs, restart the node.
"""
