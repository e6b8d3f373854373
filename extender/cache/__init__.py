"""What the extender knows and has decided, changed by one event at a time.

Begin with `cache` (the class `Cache`: questions, and one `step`), `events` (all events
and effects) and `reservations` (all chips that are kept, with their owners). `step`
applies an event; only `cache` imports it and `facts`. `node_state` computes the free
chips of one node. `decode` translates objects of the API server into events. `verify`
compares the facts with the objects that the watches have stored. `overlay` shows the
cache as if pods were gone.

Belongs here: facts about nodes, pods and the ConfigMaps of agents, and the reservations
of this extender. Does not belong here: how a decision is made (`scheduling`,
`planning`, `preemption`), clocks and I/O; an import contract forbids asyncio, aiohttp
and time.

Decisions: `docs/adr/0020-a-term-of-leading-starts-with-nothing.md`,
`docs/adr/0024-a-sweep-compares-versions.md`,
`docs/adr/0026-a-node-is-there-once-for-each-resource.md`.
"""
