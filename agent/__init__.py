"""The node agent: device plugin, health and report of one Kubernetes node.

The kubelet decides when a pod gets chips and does not say which pod; the scheduler
decides which chips. The agent brings both together: it hands out the chips of the
claim, learns afterwards who got them, and sees to it that annotations, ConfigMap
and the kubelet's list say what is mounted.

    devices    what the hardware shows             (values, drivers, one caller)
    health     what a fault means for a chip       (pure)
    claims     which pod an Allocate is for        (pure)
    picture    what is published, as texts         (pure)
    report     when it is published                (pure)
    journal    holds on the node's disk
    plugin     the kubelet's side: sockets, registration, Allocate
    reporter   the cluster's side: ConfigMap and Node
    observe    metrics and log keys

Does not belong here: choosing among nodes (the extender), how pods become shapes
and texts become values (`scheduler_core`), talking to the API server (`kube`).
"""
