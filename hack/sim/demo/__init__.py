"""The demo: a simulated fleet, real programs, faults on a timeline, and what came of them."""
