"""Choice of leaf switches and SuperPoDs, and of the nodes under them, for a job.

It answers: how many nodes of which leaf or SuperPoD a job gets, which nodes these
are, and why a job does not fit.

Belongs here: values about switches, and orders of leaves and SuperPoDs.
Does not belong here: whether a node can take a pod (`node`, `index.counts`), which
chips a pod gets (`placement`), reading the ConfigMap (`wire.switches`).

Open `leaf_order` first: `decide` chooses leaves, for switch affinity 1.0 and
single-layer networks itself, for 2.0 by `shared_leaves`. `leaves` has the values.
`superpods` is independent of these three.

Decisions: docs/adr 15 (slots of leaves are followed, not counted). Seed facts
(`tests/seeds.py`): 001-08, 001-10 to 001-13, 003-03 to 003-14.
"""
