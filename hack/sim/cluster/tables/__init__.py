"""What kubectl shows of an object."""
