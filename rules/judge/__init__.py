"""Facts about one node come in one by one; incidents go out, with the state that the next fact is
judged on.
"""
