"""What somebody typed comes in; one command on several nodes, again and again, or completed goes
out.
"""
