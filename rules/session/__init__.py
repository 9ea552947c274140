"""One node's case comes in (objects, now); the next writes and the one sentence about it go
out.
"""
