"""What a drain needs to know is read here, and its evictions are sent."""
