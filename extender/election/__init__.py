"""Leader election by a Lease, and a new extender for each leadership term.

Answers: may this replica answer kube-scheduler and bind pods now, and if not, why?
Belongs here: the state machine of the election (`lease`, pure), the loop that reads
and renews the Lease as this state machine says (`elector`), and the extender of the
current term (`term`).
Does not belong here: the HTTP requests for a Lease (`kube.leases`), and the extender
itself (`extender.app`).
Open first: `lease`; its table has every change of phase that its `step` makes.
Decision records: 20 (a leadership term starts with an empty cache).
"""
