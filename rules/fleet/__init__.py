"""All nodes come in; who may start, who may drain and what holds the others back go out."""
