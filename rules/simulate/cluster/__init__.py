"""Faults, jobs and a controller come in; what became of nodes and work in virtual time goes
out.
"""
