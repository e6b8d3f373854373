"""Placement of a pod or of a whole job: nodes, chips and the reason, or a rejection.

Belongs here: rules over all pods of a job, the choice of nodes for one pod or a gang,
the draft of a gang's plan, and the overlay for nodes as if pods were gone or placed.
Does not belong here: choice of chips on one node (`node`), search in the index
(`index`), order of leaf switches and SuperPoDs (`topology`), victims (`preemption`).

Open first: `pod.py` for one pod, `job.py` for a job.
Decision records: 15 (slots of leaves), 18 (bind of a job), 26 (nodes with several
resources), 42 (one kind of server for a job).
"""
