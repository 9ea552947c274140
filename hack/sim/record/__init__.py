"""Records the GPUs of a real node as a description that `--nvml sim:FILE` replays: see
`__main__`.
"""
