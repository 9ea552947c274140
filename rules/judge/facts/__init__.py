"""One module per kind of fact: each takes the judge's state and one fact, and raises, renews or
closes incidents.
"""
