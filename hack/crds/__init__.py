"""CRDs generated from the wire types in `rules`; see `python -m hack.crds --help`."""
