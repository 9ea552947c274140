"""Makes `docs/xid.md`. Not shipped."""
