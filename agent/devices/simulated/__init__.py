"""The simulated driver, and the file that describes its chips."""
