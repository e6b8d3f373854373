"""Simulate the chips of a node, as a YAML file describes them.

Here: the driver that follows the file (`driver`), and the parser of the file (`file`).
Not here: the chips and faults of a simulated cluster. `sandbox` writes these into such
files.

Open `file` first: its docstring shows the format. Decision record in docs/adr: 10 (a
sandbox of our own).
"""
