"""The review page: what the remediator knows, as HTML and JSON, read-only.

`remediator.view` fills one value per page (fleet, node, history), `rendering` renders it with a
template, `site` serves it. Nothing in here writes to the cluster or decides anything.
"""
