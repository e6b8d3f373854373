"""What the hardware says, and how it is asked.

Belongs here: the values that a driver reports (`reading`), the contract that
every driver keeps (`driver`), the drivers themselves (`simulated`), and the one
task that asks a driver in turn without ever waiting for it too long (`poller`).

Does not belong here: what a fault means for a chip (`agent.health`), and who was
given which chip (`agent.claims`).
"""
