"""The operator's file comes in; a checked policy with every default filled in goes out, or errors
with their paths.
"""
