"""The extender's copy of the cluster, changed by one event at a time.

Begin with `cache` (the class `Cache` and the function `step`) and `events` (all events
that change the cache). `node_state` computes the free chips of one node. `decode`
translates objects of the API server into events. `verify` compares the cache with the
objects that the watches have stored. `overlay` shows the cache as if pods were gone.

Belongs here: facts about nodes, pods and the ConfigMaps of agents, and the reservations
of this extender. Does not belong here: decisions (`scheduling`, `planning`,
`preemption`), clocks and I/O; an import contract forbids asyncio, aiohttp and time.

Decisions: `docs/adr/0020-a-term-of-leading-starts-with-nothing.md`,
`docs/adr/0024-a-sweep-compares-versions.md`,
`docs/adr/0026-a-node-is-there-once-for-each-resource.md`.
"""
