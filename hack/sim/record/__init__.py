"""Record the GPUs of a real node as a description for `--nvml sim:FILE`: see `__main__`."""
