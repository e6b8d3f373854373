"""Informers that feed the cache, and writers to the API server."""
