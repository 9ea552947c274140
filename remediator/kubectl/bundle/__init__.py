"""What the cluster says about one node comes in; files for whoever helps go out: an archive for
support without secrets, a folder for the vendor of a part.
"""
