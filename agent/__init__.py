"""Run the node agent: device plugin, chip health and node report of one node.

The kubelet decides when a pod gets chips and does not name the pod. The scheduler
decides which chips. The agent hands out the chips of a claim and learns afterwards
which pod got them. It keeps annotations, ConfigMap and device list equal to the mounted
chips.

    devices    readings of the driver: values, real and simulated drivers
    health     levels of faults and conditions of chips (pure)
    claims     the ledger: which pod an Allocate is for (pure)
    journal    holds on the node's disk
    monitor    changes of hardware and fault configuration, passed on to the ledgers
    plugin     the kubelet's side: sockets, registration, Allocate, pod-resources
    pods       pods of this node: informer, reconciler, annotator
    report     the cluster's side: ConfigMap and Node
    status     `ascend-agent status`
    observe    metrics, log keys, events

Here: only what joins these packages, and settings. Not here: choosing among nodes
(`extender`), parsing pods and wire formats (`scheduler_core`), requests to the API
server (`kube`), what every program needs (`service`).

Open `app` first: it constructs the parts and starts them in order. `product_line` has
the parts of one product line. `settings` has every flag, `wiring` the choices that
settings leave open.

Decision records in docs/adr: 9 (one agent for one kubelet, by a lock), 11 (standalone),
12 (another device plugin for the same resource is left alone), 27 (one agent for all
product lines).
"""
