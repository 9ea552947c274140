"""What this machine shows (PCI, udev, host, dcgm-exporter) comes in; facts for the judge go
out.
"""
