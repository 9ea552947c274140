"""A write comes in as bytes; the API server's answer to it goes out."""
