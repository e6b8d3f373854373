"""Tell operators about events on a node: metrics, log lines, Kubernetes events.

Here: the names of metrics, and the classes that write metrics and log lines. Not here:
detecting the events; the module that detects one calls the announcer. Not here either:
the document of `ascend-agent status` (`agent.status`), the node's ConfigMap
(`agent.report`).

Open `problems` first: it has the table of problems that last, and how each is told.
`announcer` has methods for the other kinds of events. `metrics` has every metric,
`registration` counts registrations with the kubelet.

Decision records in docs/adr: 12 (the agent leaves another device plugin alone and
announces it).
"""
