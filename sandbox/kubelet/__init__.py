"""An embedded kubelet that behaves towards device plugins as the real one does.

What belongs here: admission, the device tables, registration of plugins,
pod-resources, `/pods`, the Node object, and containers as records. What does
not: any knowledge of what a plugin hands out.

Paths in comments are under `pkg/kubelet/` of Kubernetes v1.36.3.
"""

from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.runtime import ContainerRecord
from sandbox.kubelet.switches import Switches

__all__ = ["ContainerRecord", "Kubelet", "Switches"]
