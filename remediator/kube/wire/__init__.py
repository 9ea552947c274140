"""A write comes in as bytes; the API server's answer to it, and the lines of a watch, go out."""
