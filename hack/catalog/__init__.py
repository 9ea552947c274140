"""Generators of the catalogs in `rules/data` and of `docs/xid.md`. Not shipped."""
