"""What a person runs without a cluster: one look at this machine, the kernel log decoded, an Xid
explained.
"""
