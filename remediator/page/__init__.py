"""The review page: what the remediator knows, as HTML and JSON, read-only.

`site` serves it, `live` takes the state, `*_view` turn a state into values, `*_page` turn values
into elements. Nothing in here writes to the cluster or decides anything.
"""
