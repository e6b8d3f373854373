"""What any of our processes needs, and nothing that knows about chips.

Settings, logs, health endpoints, signals, back-off, wall clocks. Nothing of ours is
imported here, so that every other package may build on it.
"""
