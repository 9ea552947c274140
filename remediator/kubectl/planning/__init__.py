"""The cluster as it is comes in; what would be done to its nodes, and at what cost, goes out."""
