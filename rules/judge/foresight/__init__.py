"""Polls of the GPUs come in; hours in which one of them was worse than its siblings go out."""
