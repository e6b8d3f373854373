"""What the extender knows of the cluster, changed by one event at a time.

Begin with `cache` (the class `Cache` and the function `step`) and `events` (what may
happen). `node_state` computes the free chips of one node. `decode` translates objects
of the API server into events. `verify` compares the cache with the objects that the
watches hold.

Belongs here: facts about nodes, pods and reports, and the reservations of this
extender. Does not belong here: decisions (`scheduling`, `planning`, `preemption`),
clocks and I/O; an import contract forbids asyncio, aiohttp and time.

Decisions: `docs/adr/0020-a-term-of-leading-starts-with-nothing.md`,
`docs/adr/0024-a-sweep-compares-versions.md`,
`docs/adr/0026-a-node-is-there-once-for-each-resource.md`.
"""
