"""Follow the pods of one node, confirm their chips, and write their annotations.

Here: the informer of the node's pods, the reconciler, and the annotator. The informer
sends events about pods to a ledger. The reconciler sends the ledger the answers of
pod-resources, the kubelet's API for device ids. The annotator patches the pods'
annotations until they match the ledger.

Not here: the rules that find the owner of a hold (`agent.claims`, pure), calls to
pod-resources (`agent.plugin.pod_resources`), the node's ConfigMap (`agent.report`).

Open `reconciler` first: it asks the kubelet which pod has which device ids.

Decision records in docs/adr: 7 (Get confirms, List only when idle), 14 (two pods in
turn can have one name, and pod-resources shows no UID), 16 (a choice of chips does not
wait for patches), 31 (a pod's configuration waits for the node's address).
"""
