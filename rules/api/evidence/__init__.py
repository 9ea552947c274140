"""A session's mark on a node comes in; what its agent knew then travels as one object, with its
digest.
"""
