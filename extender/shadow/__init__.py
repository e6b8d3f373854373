"""Compares our decisions with those of the scheduler that is in charge."""
