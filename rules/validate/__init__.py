"""What a test under load measured comes in; one verdict with the checks behind it goes out."""
