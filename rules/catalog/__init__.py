"""A number or name comes in (Xid, SXid, signal, reason); its row goes out: class, severity, level,
action, threshold.
"""
