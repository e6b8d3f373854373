"""Run the node agent: device plugin, chip health and node report of one node.

The kubelet decides when a pod gets chips and does not name the pod. The scheduler
decides which chips. The agent hands out the chips of a claim and learns afterwards
which pod got them. It makes three outputs agree with the mounted chips: the pods'
annotations, the ConfigMap `mindx-dl-deviceinfo-<node>` and the device list for the
kubelet.

    devices    readings of the driver: values, real and simulated drivers
    health     levels of faults and conditions of chips (pure)
    claims     the ledger: which pod an Allocate is for (pure)
    journal    holds on the node's disk
    monitor    passes changes of hardware and fault configuration to the ledgers
    plugin     the kubelet's side: sockets, registration, Allocate, pod-resources
    pods       pods of this node: informer, reconciler, annotator
    report     the cluster's side: ConfigMap and Node
    status     `ascend-agent status`
    observe    metrics, log keys, events

The modules of this folder join these packages and define the settings. Four tasks are
in other packages: `extender` chooses among nodes, `scheduler_core` parses pods and wire
formats, `kube` sends requests to the API server. `service` has what every program
needs.

Open `app` first: it constructs the parts and starts them in order. `product_line` has
the parts of one product line. `settings` has every flag. `wiring` chooses driver,
product lines and mount method, from the settings or by probing.

Decision records in docs/adr: 9 (one agent for one kubelet, by a lock), 11 (standalone),
12 (another device plugin for the same resource is left alone), 27 (one agent for all
product lines).
"""
