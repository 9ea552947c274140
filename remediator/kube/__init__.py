"""Calls to the API server: access, pace, caches, leadership; every harmful one through the
gateway.
"""
