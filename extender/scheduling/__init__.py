"""One pod: filter nodes, reserve chips, the claim that bind writes."""
