"""Simulate the chips of a node, as a YAML file describes them.

Here: the driver that reads the file after each edit (`driver`), and the file's parser
(`file`). Not here: writing the file. People write it, or the package `sandbox` does
for a simulated cluster.

Open `file` first: its docstring shows the format. Decision record in docs/adr: 10 (a
sandbox of our own).
"""
