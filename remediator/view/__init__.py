"""API objects come in; what a person is shown goes out as plain values, for the page and the
command.
"""
