"""What the cluster says about one node comes in; an archive for support without secrets goes
out.
"""
