"""What the extender knows of the cluster, changed by one event at a time."""
