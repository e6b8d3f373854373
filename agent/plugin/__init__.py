"""Serve the kubelet: register a device plugin, list devices, answer Allocate.

Here: everything that speaks the kubelet's contracts (device plugin v1beta1,
pod-resources v1, CDI), and the translation between the kubelet's messages and values of
the ledger. Not here: any decision about which pod gets which chip (`agent.claims`), and
reading chips (`agent.devices`).

Open `servicer` first: it answers Allocate for whole chips. `server` registers the
servicer at the start and after each restart of the kubelet. `rivals` detects another
plugin of the same resource. `pod_resources` asks the kubelet which pod has which device
ids, by the calls Get and List. `allocate_activity` keeps List from starting during an
Allocate. `mounts` renders the answers to Allocate, which say how chips get into a
container. `static_parts` serves parts of chips by claims, `vnpu` as the kubelet
chooses.

Decision records in docs/adr: 7 (Get confirms, List only when idle), 8 (a kubelet's
restart is noticed by checking), 9 (one agent for one kubelet, by a lock), 12 (a rival
is left alone).
"""
