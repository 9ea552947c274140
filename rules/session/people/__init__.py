"""What a person saw when they gave their word comes in; which faults that word covers goes out."""
