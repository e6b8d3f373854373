"""Tell operators what happens on a node: metrics, log lines, Kubernetes events.

Here: the names of metrics and log keys, and the classes that write them. Not here:
finding out the facts; the module that knows a fact calls the announcer. Not here
either: the document of `ascend-agent status` (`agent.status`), the node's ConfigMap
(`agent.report`).

Open `announcer` first: it has one method for each fact that people hear of. `metrics`
has every metric, `log` every key of a log line, `registration` counts registrations
with the kubelet.

Decision records in docs/adr: 12 (a rival is left alone, and announced).
"""
