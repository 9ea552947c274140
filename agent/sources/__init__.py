"""Collectors of facts about this machine: kernel log, PCI, udev, host and dcgm-exporter."""
