"""Verdicts come in; patches of Node, GPUNodeHealth and Events go out, in lanes that retry by
themselves.
"""
