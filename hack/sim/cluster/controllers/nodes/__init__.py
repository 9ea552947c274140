"""Kubelets, node lifecycle, placement and scheduling."""
