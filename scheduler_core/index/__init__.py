"""Index over all nodes that finds the best one without looking at each.

It answers: which node is best for a count of chips, in which order the others follow,
why nodes refuse, and how many nodes of each leaf or SuperPoD can take a pod.

Belongs here: structures that are updated when a node changes and read by queries.
Does not belong here: rules about chips (`node`), jobs of several pods (`placement`),
the choice of leaves and SuperPoDs (`topology`).

Open `cluster` first: `Cluster` is the index, and the only mutable value of the core.
`queries` has the queries and their answers: `placement.overlay` answers them, too.
Inside the index `sections` separates nodes by row, `buckets` by their answers,
`sorted_names` orders names, `counts` follows sites.

Decisions: docs/adr 15 (slots of leaves are followed, not counted), 26 (a node is in
the index once for each resource). Seed facts (`tests/seeds.py`): 004-02, 004-14.
"""
