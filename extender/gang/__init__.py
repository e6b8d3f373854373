"""Which pods are one job, and when its waiting binds are released."""
