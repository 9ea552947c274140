"""A GPU's or node's faults come in; its record, the chance of a return and the verdict go out."""
