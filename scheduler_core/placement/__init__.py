"""Where a pod or a whole job goes; an overlay for "as if placed"."""
