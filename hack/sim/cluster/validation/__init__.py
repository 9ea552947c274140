"""What the API server refuses, with its words."""
