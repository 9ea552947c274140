"""Rows come in; one page of them, those that a word finds, or their groups go out."""
