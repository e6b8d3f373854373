"""Snapshot and job files: a cluster and a job as JSON, and the answers to questions.

Belongs here: reading, checking and writing of these files, and questions on them
without a cluster, as for `python -m scheduler_core`.
Does not belong here: rules of placement (`placement`), formats that other programs
define (`wire`), access to files (`scheduler_core/__main__.py`).

Open first: `questions.py` for the answers, `document.py` for the format.
Decision record: 26 (nodes with several resources).
"""
