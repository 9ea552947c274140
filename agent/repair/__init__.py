"""A repair step of this very machine comes in; what was asked of its driver or init goes out."""
