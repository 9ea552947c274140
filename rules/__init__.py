"""What a signal means and what should happen: pure functions and data, no I/O, no clock."""
