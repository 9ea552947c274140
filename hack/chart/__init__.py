"""The Helm chart, made from what kustomize builds, so that the two cannot drift.

`builds` asks kubectl for the base and for the base with each component; `merge` lays these over
each other into one tree whose branches carry conditions; `emit` writes that tree as templates;
`values` is what an installer may set. `python -m hack.chart` writes `daemonset/chart`, `--check`
compares.
"""
