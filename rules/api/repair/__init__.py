"""A step of a repair or of its proof comes in; the write that asks for it, or takes it back, goes
out.
"""
