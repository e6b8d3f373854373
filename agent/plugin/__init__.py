"""The kubelet's side of the agent: sockets, registration, gRPC.

Here: everything that speaks the kubelet's contracts, and the translation
between its messages and the ledger's values. Not here: any decision about
which pod gets which chip (`agent.claims`).
"""
