"""Which pods to evict for a pod or a job of higher priority."""
