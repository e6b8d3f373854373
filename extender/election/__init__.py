"""Leader election by a Lease, and what runs for one term."""
