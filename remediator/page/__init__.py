"""The review page: what the remediator knows, as HTML and JSON, read-only.

`remediator.view` fills one value per page (fleet, node, history), `rendering` renders it with a
template, `site` serves it; `server` answers probes and metrics, too. Nothing in here writes to
the cluster or decides anything.
"""
