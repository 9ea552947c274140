"""An order to test this node's GPUs comes in; what they did under load goes out, unjudged. One
process for each GPU calls the CUDA driver, so that one that hangs holds up no other.
"""
