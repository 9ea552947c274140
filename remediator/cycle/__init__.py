"""A changed object comes in; one look at one node goes out, decided by the rules and written by
the gateway.
"""
