"""Whole jobs: candidate nodes, the plan, its topology, its reservations."""
