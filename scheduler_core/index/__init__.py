"""All nodes of a cluster, kept by what they can still serve."""
