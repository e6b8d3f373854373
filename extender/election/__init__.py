"""Leader election by a Lease, and the extender that runs for one term of leading.

Answers: may this replica decide now, and if not, why?
Belongs here: the state machine of the Lease (`lease`, pure), the reads and writes of
the Lease for it (`elector`), and the extender of the current term (`term`).
Does not belong here: reads and writes of Lease objects (`kube.leases`), anything that
an extender knows or decides.
Open first: `lease`; its table has every transition.
Decision records: 20 (a term of leading starts with nothing).
"""
