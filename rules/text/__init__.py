"""Read text and JSON that others wrote into bounded, harmless values."""
