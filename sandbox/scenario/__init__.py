"""Scenarios.

Files that say what happens in a cluster, and what must be true afterwards.

Belongs here: reading a file with all its errors and their lines, running it, its words
and its schema. Does not belong here: what a fault does (`sandbox.faults`), and how
facts are read and checked (`sandbox.inspect`).

`document` keeps the lines of the YAML, `parse` makes a `Scenario` of it, `run` runs it
in a world.

Decision: `docs/adr/0010-a-sandbox-of-our-own.md`.
"""
