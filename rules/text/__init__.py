"""Decode text and JSON of other programs into bounded, printable values."""
