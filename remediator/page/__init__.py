"""The review page: the state of the remediator as HTML and JSON, read-only.

`remediator.view` builds one value per page (fleet, node, history), `rendering` renders it with a
template, and `site` serves it. `server` serves probes and metrics.
"""
