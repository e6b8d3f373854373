"""Leaf switches and SuperPoDs: the order of nodes in a network."""
