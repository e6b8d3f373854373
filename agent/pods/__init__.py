"""Pods of this node: their informer, the reconciler, their annotations."""
