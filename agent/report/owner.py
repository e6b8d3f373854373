"""Find the owner of the node's ConfigMap: the DaemonSet that controls the agent's pod.

The ConfigMap is `mindx-dl-deviceinfo-<node>`. When its owner is deleted, Kubernetes
deletes the ConfigMap. The owner must be in the ConfigMap's namespace: if it were in
another, Kubernetes would delete the ConfigMap at once.
"""

import logging

from kube import pods
from kube.client import Client
from kube.errors import ForbiddenError, NotFoundError
from kube.objects import OwnerReference

log = logging.getLogger(__name__)


class Owner:
    """Finder of the owner of ConfigMap `mindx-dl-deviceinfo-<node>`: a DaemonSet."""

    def __init__(
        self, client: Client, *, pod: str, namespace: str, configmap_namespace: str
    ) -> None:
        """Construct without a request to the API server.

        Args:
            client: Open; owned by the caller.
            pod: Name of the agent's pod; "" if unknown.
            namespace: Namespace of the agent's pod; "" if unknown.
            configmap_namespace: Namespace of the node's ConfigMap.
        """
        self._client = client
        self._pod = pod
        self._namespace = namespace
        self._configmap_namespace = configmap_namespace
        #: the owner, or why there is none; None until it is known
        self._result: OwnerReference | str | None = None

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
        if not self._pod or not self._namespace:
            return "this agent was not told its pod (POD_NAME, POD_NAMESPACE)"
        if self._namespace != self._configmap_namespace:
            return (
                f"this agent runs in namespace {self._namespace} and the ConfigMap is "
                f"in {self._configmap_namespace}: an owner must be in the same one"
            )
        try:
            pod = await pods.get(self._client, self._namespace, self._pod)
        except (ForbiddenError, NotFoundError) as error:
            return f"this agent's own pod cannot be read: {error}"
        controllers = (
            reference
            for reference in pod.metadata.owner_references or ()
            if reference.controller
        )
        reason = f"pod {self._namespace}/{self._pod} has no controller"
        return next(controllers, reason)
