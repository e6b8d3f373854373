"""Evictions through the API server, and dry runs of evictions.

The API server answers 429 to an eviction that would violate a PodDisruptionBudget.
"""

import logging
from collections.abc import Callable

from extender.metrics import Metrics
from extender.preemption.attempt import Outcome, Victim
from kube import pods
from kube.client import Client
from kube.errors import (
    ConflictError,
    KubeError,
    NotFoundError,
    TooManyRequestsError,
)
from scheduler_core.wire.pods import NpuPod

log = logging.getLogger(__name__)


class KubeEvictions:
    """Sender of the preemptor's evictions, through a Kubernetes client."""

    def __init__(
        self,
        client: Client,
        metrics: Metrics,
        *,
        tell: Callable[[NpuPod, str, str], None],
        wake: Callable[[], None],
    ) -> None:
        """Use a client that is open already; send nothing yet.

        Args:
            client: Owned by the caller, who closes it.
            metrics: Counts evictions, but no dry runs.
            tell: Emits an event on a pod, given the reason and the message.
            wake: Makes schedulers try all refused pods again.
        """
        self._client = client
        self._metrics = metrics
        self.tell = tell
        self.wake = wake

    async def evict(self, victim: Victim, *, rehearse: bool) -> Outcome:
        """Ask the API server to evict a pod, and return the outcome.

        Args:
            victim: The pod. If it does not exist or has a different UID, the outcome is
                GONE.
            rehearse: If true, send only a dry run, which evicts nothing.
        """
        outcome = await self._evict(victim, rehearse=rehearse)
        if not rehearse:
            self._metrics.evictions.labels(outcome).inc()
        return outcome

    async def _evict(self, victim: Victim, *, rehearse: bool) -> Outcome:
        try:
            await pods.evict(
                self._client,
                namespace=victim.namespace,
                name=victim.name,
                uid=victim.uid,
                dry_run=rehearse,
            )
        except TooManyRequestsError:
            return Outcome.BUDGET
        except (NotFoundError, ConflictError):
            return Outcome.GONE
        except KubeError as error:
            log.warning(
                "pod not evicted", extra={"pod": victim.title, "error": str(error)}
            )
            return Outcome.FAILED
        return Outcome.YES
