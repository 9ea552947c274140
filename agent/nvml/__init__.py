"""The NVML sense: a child process that asks the driver, and the link that watches the child.

The main loop talks to `link.NvmlLink` only and receives the messages of `messages`. Nothing here
judges: readings and return codes go out as they came in.
"""
