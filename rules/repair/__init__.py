"""Choose the next repair step, describe its request, and verify that it happened."""
