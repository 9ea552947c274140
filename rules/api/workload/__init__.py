"""A pod, its containers and claims come in; how many GPUs it holds and which gang it is of go
out.
"""
