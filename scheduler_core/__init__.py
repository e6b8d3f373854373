"""Which chips of which node a pod gets: the affinity rules, and nothing else.

Belongs here: products, choices of chips, the order over nodes, the index that
makes decisions cheap, shapes of pods, and the formats that other programs read.
Does not belong here: anything that asks a clock, a file, a socket or chance. Every
answer is a function of its arguments; `scheduler_core.wire` may use json and
hashlib, `scheduler_core.__main__` may read files. `README.md` shows the way through.
"""
