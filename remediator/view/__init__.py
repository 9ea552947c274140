"""Explain API objects as plain values, once for the page and the command."""
