"""Read Kubernetes objects into typed views, and build the bodies of our writes."""
