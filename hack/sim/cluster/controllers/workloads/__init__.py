"""The controllers of workloads: Deployment to JobSet, and disruption budgets."""
