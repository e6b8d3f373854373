"""What making room asks of the API server: may this pod go, and let it go.

PodDisruptionBudgets are the API server's to keep: it refuses with 429.
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
    """What making room asks of the world."""

    def __init__(
        self,
        client: Client,
        metrics: Metrics,
        *,
        tell: Callable[[NpuPod, str, str], None],
        wake: Callable[[], None],
    ) -> None:
        """Use an open client.

        Args:
            client: Open.
            metrics: Counts evictions.
            tell: Says something on a pod: reason, sentence.
            wake: Has the scheduler try pods again.
        """
        self._client = client
        self._metrics = metrics
        self.tell = tell
        self.wake = wake

    async def evict(self, victim: Victim, *, rehearse: bool) -> Outcome:
        """Evict a pod, or ask only whether it could be."""
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
                rehearse=rehearse,
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
