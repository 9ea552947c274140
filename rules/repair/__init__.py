"""What was tried and what is seen come in; the next step, its request and its proof go out."""
