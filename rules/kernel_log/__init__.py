"""Parse a kernel log line into a typed record of what the driver reported."""
