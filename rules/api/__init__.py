"""JSON of the API server comes in and typed views of it go out; what we write is built here too,
each object once.
"""
