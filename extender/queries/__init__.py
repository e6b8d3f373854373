"""Read-only endpoints: explain, what-if, snapshot."""
