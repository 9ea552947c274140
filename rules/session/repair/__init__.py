"""A drained node's case comes in; the repair step to ask for, to wait for or to end goes out."""
