"""What a real cluster brings besides its API server: controllers, a scheduler, kubelets.

Each controller is one pure function from what the API holds to the writes it wants, and one
description of what wakes it. `suite.ClusterControllers` runs them over any `Client`: in process
on the simulated server, or over HTTP on a real one whose own controller manager is absent.
"""
