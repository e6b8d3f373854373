"""Tell each pod of the faults of its chips, and of their end.

Who reads `kubectl describe pod` knows nothing of the node's chips, and the pod keeps a
broken chip for as long as it runs. A pod is told once of a chip, when the chip breaks
or when it turns out that the pod has it; once more when the chip has recovered.
"""

from collections.abc import Callable
from typing import NoReturn

from agent.claims import values
from agent.claims.store import LedgerStore
from agent.health.conditions import Condition, Health
from agent.observe.announcer import Announcer


class PodFaults:
    """Monitor of the pods that have chips with faults, of one product line."""

    def __init__(
        self,
        store: LedgerStore,
        *,
        last_health: Callable[[], Health],
        announcer: Announcer,
    ) -> None:
        self._store = store
        self._last_health = last_health
        self._announcer = announcer
        #: {(pod uid, chip): condition that the pod was told}
        self._conditions: dict[tuple[str, int], Condition] = {}

    async def run(self) -> NoReturn:
        """Tell the pods after each change of the ledger or of a chip's condition."""
        while True:
            version = self._store.version
            self.tell()
            await self._store.changed(version)

    def tell(self) -> None:
        """Announce to each living pod what has changed of its chips.

        A chip on its way back is announced when it is back, like on the Node.
        """
        health, ledger = self._last_health(), self._store.ledger
        conditions: dict[tuple[str, int], Condition] = {}
        for chip, chip_health in health.chips.items():
            after = chip_health.condition
            if after is Condition.HEALTHY and not self._conditions:
                continue
            for pod in values.living_pods(ledger, chip):
                known = self._conditions.get((pod.uid, chip), Condition.HEALTHY)
                if after not in (known, Condition.RECOVERING):
                    known, why = after, chip_health.reason
                    self._announcer.pod_chip_changed(pod, chip, known, why)
                if known is not Condition.HEALTHY:
                    conditions[pod.uid, chip] = known
        self._conditions = conditions
