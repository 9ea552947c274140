"""What gpuward left in a cluster comes in; every node as it was before the installation goes
out.
"""
