"""Pair each Allocate call with a pod and its chips, in one ledger per product line.

The kubelet calls Allocate without the name of a pod. The ledger serves a claim with the
requested number of chips, usually the oldest. pod-resources names the pod afterwards.
If another pod than expected got the chips, the pods' annotations are then corrected.

This package has claims, slots and holds as frozen values, and pure functions on them.
It uses no sockets, files, API server or clocks. Other packages feed events into the
ledger, and carry out the effects that the ledger returns.

Open `ledger` first: `ledger.step` takes one event and returns the next ledger and its
effects. `values` has the ledger's data, `events` has the events and effects. `allocate`
answers the kubelet's calls. `confirm` finds the owners of holds, and `release` ends
holds.

Decision records in docs/adr: 3 (ids stand for chips by a bijection), 4 (slots are
exchanged once the owner of a hold is known), 7 (pod-resources' Get finds the owners;
its List is called only while no Allocate is under way), 11 (standalone), 14 (an answer
of pod-resources has a pod name and no uid: it is believed once the kubelet has admitted
the pod), 16 (a choice of chips does not wait for patches of annotations).
"""
