"""Which pod is an Allocate for, and what follows from it.

Here: the node's ledger of claims and holds, as values and pure functions. The
kubelet does not say for which pod it asks; the ledger serves the oldest claim
that fits, learns afterwards from the pod-resources API who it was, and says
what has to be written so that annotations tell what was mounted.

Not here: sockets, files, the API server, clocks. `ledger.step` takes one event
and returns the next state and what is to be done about it.
"""
