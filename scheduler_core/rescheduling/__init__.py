"""Rescheduling after faults: the fewest pods of a job that go and find places again.

Belongs here: the choice among the rungs that a job allows, and which of the healthy
pods that go return home.
Does not belong here: places for pods (`placement`), the way of a fault through time
(`extender/rescheduling`), levels of faults (`wire`).

Open first: `ladder.py`.
Decision record: none.
"""
