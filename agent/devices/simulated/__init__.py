"""Simulate the chips of a node, as a YAML file describes them.

Here: the driver that reads the file after each edit (`driver`), and the file's parser
(`file`). Not here: which chips and faults a simulated cluster has. `sandbox` writes
these into such files.

Open `file` first: its docstring shows the format. Decision record in docs/adr: 10 (a
sandbox of our own).
"""
