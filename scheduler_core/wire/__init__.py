"""Codecs between values and the texts that other programs read and write.

Each module names one format: pod annotations, the device ConfigMap, the node's
inventory, the configuration of a pod, the snapshot file. Parsing is strict and says
what was expected, what was found, and where; rendering is byte for byte what the
readers of these formats have seen so far.
"""
