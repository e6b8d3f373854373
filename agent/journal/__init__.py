"""Keep the holds of this node on its disk, so that a restarted agent has them.

Here: the format of the journal file (`file`), and the task that keeps the holds in the
file equal to those in the ledgers (`writer`).

Not here: the meaning of a hold (`agent.claims`), and the annotations on pods, which the
API server keeps (`agent.pods`).

Open `file` first: its docstring has the format. Decision record in docs/adr: 5 (a
journal before each answer, without fsync).
"""
