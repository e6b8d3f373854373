"""Holds on disk, so that a restarted agent knows them."""
