"""A simulated fleet's signs come in; what other systems would do about them, by their documents,
goes out.
"""
