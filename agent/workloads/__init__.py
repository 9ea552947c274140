"""A process ID in a kernel line comes in; the workload it belongs to goes out, or nothing."""
