"""The controllers of workloads: Deployment, ReplicaSet, DaemonSet, Job, and disruption budgets."""
