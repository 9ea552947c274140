"""The commands about the past: what is on record of GPUs and rates, and all of it as one
archive.
"""
