"""A raw line of the kernel log comes in; a typed record of what the driver reported goes out."""
