"""Follow the pods of one node, confirm their chips, and write their annotations.

Here: the informer of the node's pods, the reconciler that compares the ledger with
pod-resources, and the annotator that patches pods. Each feeds events into a ledger or
carries its effects out. Not here: the rules of pairing and confirmation
(`agent.claims`, pure), calls to pod-resources (`agent.plugin.pod_resources`), the
node's ConfigMap (`agent.report`).

Open `reconciler` first: it asks the kubelet which pod has which device ids. `informer`
says which pods there are, `annotator` writes what the ledger knows onto them.

Decision records in docs/adr: 7 (Get confirms, List only when idle), 14 (a name counts
once the kubelet has said whose it is), 16 (a choice does not wait for patches).
"""
