"""One node: its chips, what is free, and the best choice of chips."""
