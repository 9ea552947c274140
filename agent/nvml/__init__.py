"""The NVML collector: a child process that calls the driver, and the link that supervises it.

The main loop uses `link.NvmlLink` only and receives facts and the status of NVML. Readings are
passed on as they are; `rules` assesses them.
"""
