"""An embedded kubelet that behaves towards device plugins as the real one does.

Belongs here: admission, device tables, registration of plugins, pod-resources, `/pods`,
the Node object, and containers as records. Does not belong here: what a plugin hands
out.

Paths in comments are below `pkg/kubelet/` of Kubernetes v1.36.3.
Decision: `docs/adr/0010-a-sandbox-of-our-own.md`.
"""

from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.runtime import ContainerRecord
from sandbox.kubelet.switches import Switches

__all__ = ["ContainerRecord", "Kubelet", "Switches"]
