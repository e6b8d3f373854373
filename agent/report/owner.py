"""Find the owner of the node's ConfigMap: the DaemonSet that controls the agent's pod.

The ConfigMap is `mindx-dl-deviceinfo-<node>`. When its owner is deleted, Kubernetes
deletes the ConfigMap. The owner must be in the ConfigMap's namespace: if it were in
another, Kubernetes would delete the ConfigMap at once.
"""

import logging
from dataclasses import KW_ONLY, dataclass, field

from kube import pods
from kube.client import Client
from kube.errors import ForbiddenError, NotFoundError
from kube.objects import OwnerReference

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Owner:
    """Finder of the owner of ConfigMap `mindx-dl-deviceinfo-<node>`: a DaemonSet."""

    client: Client  #: open; owned by the caller
    _: KW_ONLY
    pod: str  #: name of the agent's pod; "" if unknown
    namespace: str  #: of the agent's pod; "" if unknown
    configmap_namespace: str
    #: the owner, or why there is none; None until it is known
    _result: OwnerReference | str | None = field(default=None, init=False)

    async def reference(self) -> OwnerReference | None:
        """Return the owner reference to write into `mindx-dl-deviceinfo-<node>`.

        None if the agent's pod is unknown, does not exist, may not be read, has no
        controller, or is not in the ConfigMap's namespace. After the first call without
        an error, all calls return the same.

        Raises:
            KubeError: The pod cannot be read now; try again.
        """
        if self._result is None:
            self._result = await self._read_controller()
            if isinstance(self._result, str):
                log.info(
                    "the ConfigMap has no owner and will outlast the agent",
                    extra={"reason": self._result},
                )
        return None if isinstance(self._result, str) else self._result

    async def _read_controller(self) -> OwnerReference | str:
        """Return a reference to the agent pod's controller, or why there is none."""
        if not self.pod or not self.namespace:
            return "this agent was not told its pod (POD_NAME, POD_NAMESPACE)"
        if self.namespace != self.configmap_namespace:
            return (
                f"this agent runs in namespace {self.namespace} and the ConfigMap is "
                f"in {self.configmap_namespace}: an owner must be in the same one"
            )
        try:
            pod = await pods.get(self.client, self.namespace, self.pod)
        except (ForbiddenError, NotFoundError) as error:
            return f"this agent's own pod cannot be read: {error}"
        controllers = (
            reference
            for reference in pod.metadata.owner_references or ()
            if reference.controller
        )
        reason = f"pod {self.namespace}/{self.pod} has no controller"
        return next(controllers, reason)
