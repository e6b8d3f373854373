"""Pair each Allocate call with a pod and its chips, in one ledger per product line.

The kubelet calls Allocate without the name of a pod. The ledger serves the oldest claim
with the requested count. It learns the pod afterwards from pod-resources. It then
states which annotations must be written, so they name the mounted chips.

Here: claims, slots and holds as frozen values, and pure functions on them. Not here:
sockets, files, the API server, clocks. The plugin, the reconciler and the annotator
feed events in and carry effects out.

Open `ledger` first: `ledger.step` takes one event and returns the next state and its
effects. `values` has the state, `events` the vocabulary. `allocate`, `confirm` and
`release` each serve one kind of event.

Decision records in docs/adr: 3 (ids stand for chips by a bijection), 4 (slots are
exchanged on confirmation), 7 (Get confirms, List only when idle), 11 (standalone), 14
(a name counts once the kubelet has said whose it is), 16 (a choice does not wait for
patches).
"""
