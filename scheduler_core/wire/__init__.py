"""Codecs between values and the texts that other programs read and write.

Each module names one format: pod annotations, the ConfigMaps of devices and of leaf
switches, the node's inventory, the configuration of a pod.
Parsing is strict: an error says where, what was expected, and what was found.
Rendering is byte for byte as MindCluster writes, since its programs read it.

Belongs here: formats that other programs define, and the pod as both the agent and the
extender read it (`pods.py`, `shapes.py`).
Does not belong here: files of our own format (`snapshot`), calls to the API server
(`kube`).

Open first: `annotations.py`, then `deviceinfo.py`.
Decision records: 4 (exchange of slots), 23 (annotations written at bind), 25 (pods that
read their annotation), 27 (several product lines on a node).
"""
