"""To whom does the node's ConfigMap belong: our own DaemonSet, so that it goes with it.

Kubernetes removes an object when its owner has gone. The owner is the controller of
the pod that we run in. It must live in the namespace of the ConfigMap: a reference
into another one would have the ConfigMap removed at once.
"""

import logging

from agent.observe import log as keys
from kube import pods
from kube.client import Client
from kube.errors import ForbiddenError, NotFoundError
from kube.objects import OwnerReference

log = logging.getLogger(__name__)


class Owner:
    """Protects what was found out about our controller, so that it is asked once."""

    def __init__(
        self, client: Client, *, pod: str, namespace: str, configmap_namespace: str
    ) -> None:
        """Ask nothing yet.

        Args:
            client: An open client.
            pod: The pod that we run in; "" for none.
            namespace: That pod's.
            configmap_namespace: Where the ConfigMap is.
        """
        self._client = client
        self._pod = pod
        self._namespace = namespace
        self._needed_in = configmap_namespace
        self._is_known = False
        self._reference: OwnerReference | None = None

    async def reference(self) -> OwnerReference | None:
        """Return the owner; None for none, for a reason that was logged.

        Raises:
            KubeError: It cannot be known now; ask again.
        """
        if not self._is_known:
            found = await self._find()
            self._is_known = True
            if isinstance(found, str):
                log.info(
                    "the ConfigMap has no owner and will outlast the agent",
                    extra={keys.REASON: found},
                )
            else:
                self._reference = found
        return self._reference

    async def _find(self) -> OwnerReference | str:
        """Return the owner, or why there is none."""
        if not self._pod or not self._namespace:
            return "this agent was not told its pod (POD_NAME, POD_NAMESPACE)"
        if self._namespace != self._needed_in:
            return (
                f"this agent runs in namespace {self._namespace} and the ConfigMap is "
                f"in {self._needed_in}: an owner must be in the same one"
            )
        try:
            pod = await pods.get(self._client, self._namespace, self._pod)
        except (ForbiddenError, NotFoundError) as error:
            return f"this agent's own pod cannot be read: {error}"
        controllers = (
            each for each in pod.metadata.owner_references or () if each.controller
        )
        none = f"pod {self._namespace}/{self._pod} has no controller"
        return next(controllers, none)
