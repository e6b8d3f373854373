"""Decisions about the chips of one node: free, chosen, refused, ranked.

It answers: which chips of a node are free, which of them a pod gets, why a node
cannot serve a pod, and how good one node is compared with another.

Belongs here: whatever follows from the masks of one node and a row of the table.
`packing` also belongs here: it tries several nodes, but only their masks.
Does not belong here: finding the best of all nodes (`index`), pods that are placed
together (`placement`), switches and SuperPoDs (`topology`), numbers of a product
(`products`).

Open `chips` first: `choose` is the decision. `layouts` holds the ways that it tries,
`order` compares nodes, `reasons` names refusals, `free` subtracts claims.

Decisions: docs/adr 6 (chips are chosen at bind), 23 (a whole node), 26 (one state for
each resource of a node). Seed facts (`tests/seeds.py`): 001-01 to 001-07, 002-02,
003-01, 003-02, 004-01 to 004-05, 004-09, 004-13, 004-14.
"""
