"""Which pods would have to go for a pod that does not fit."""
