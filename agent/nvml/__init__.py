"""The NVML collector: a child process that asks the driver, and the link that watches the child.

The main loop talks to `link.NvmlLink` only and receives facts and the status of NVML. Nothing here
judges: readings go out as they came in.
"""
