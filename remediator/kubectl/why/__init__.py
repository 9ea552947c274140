"""One node's objects come in; the answer to why it is gone goes out as text."""
