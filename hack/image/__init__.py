"""What the image is built from: requirements with hashes, generated from constraints.txt.

`python -m hack.image` after a change of dependencies or constraints; the Dockerfile and its test
install from what it writes.
"""
