"""Listeners, endpoints and request bodies, whatever the protocol."""
