"""Reads drivers, processes and the fault ConfigMap, and passes on what changed."""
