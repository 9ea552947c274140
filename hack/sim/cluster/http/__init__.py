"""The API server on a real port: authentication, authorization, routes, streams."""
