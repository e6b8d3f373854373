"""Scenarios: what is to happen in a cluster, and what is expected of it, in a file.

What belongs here: reading a file whole, with all its errors and their lines; playing
it; the vocabulary for people and its schema. What a fault is and does is decided in
`sandbox.faults`, how facts are read and judged in `sandbox.demo`.

The way through: `document` keeps the lines of YAML, `parse` makes a `Scenario` of it,
`run` plays it in a world.
"""
