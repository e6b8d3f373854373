"""Charter to come."""
