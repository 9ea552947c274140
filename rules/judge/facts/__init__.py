"""Judge one kind of fact per module: open, renew or close incidents."""
