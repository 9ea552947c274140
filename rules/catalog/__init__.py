"""Look up an Xid, SXid, signal or reason: class, severity, level, action, threshold."""
