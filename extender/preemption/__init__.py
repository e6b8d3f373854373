"""Eviction of pods with lower priority, so that a refused pod or job fits.

Begin with `preemptor`: it collects refusals, starts attempts and carries their effects
out. Then read `attempt` (the phases of one attempt) and `victims` (which pods to
evict). `apiserver.writers` sends the evictions.

Belongs here: choosing victims, and reserving the chips that their evictions free. Does
not belong here: node filters (`scheduling`), plans (`planning`), the requests of
Volcano (`volcano.victims`).

Decision: `docs/adr/0021-room-is-made-by-eviction.md`.
"""
