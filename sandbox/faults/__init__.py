"""Faults of the sandbox.

What can be made to break, with parameters, and how it is done.

Begin with `kinds`, the table of faults. `parse` reads a fault from a command or a
scenario, `inject` carries it out: by means of the operating system, or between two
programs. A fault that is impossible in the running cluster is refused with a sentence.

Decision: `docs/adr/0010-a-sandbox-of-our-own.md`.
"""
