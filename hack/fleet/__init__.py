"""A fleet of GPU nodes over months of virtual time: real rules, generated faults, a score.

    python -m hack.fleet --nodes 60 --days 60 [--policy FILE] [--seed S]

For maintainers who change a rule of the fleet: what does it do to many nodes over a long time?
Nodes hold no pods here, so a drain ends at once; drains are what the scenario tests play.
"""
