"""A cluster and a job as documents: read, check, write, answer."""
