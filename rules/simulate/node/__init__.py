"""A fault begins or ends on a simulated machine; what its agent would have seen and said goes
out.
"""
