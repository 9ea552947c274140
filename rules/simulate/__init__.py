"""A fleet that never was comes in (its classes of faults, a policy, dice); a scored year goes
out.
"""
