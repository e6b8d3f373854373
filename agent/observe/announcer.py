"""Announce changes on the node by log lines, metrics and Kubernetes events.

Problems that last have a table: `agent.observe.problems`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from agent.claims import values
from agent.claims.events import Counted, Effect, Noted, Refused
from agent.claims.store import LedgerStore
from agent.claims.values import Ledger
from agent.devices.processes import Occupant
from agent.devices.reading import Level
from agent.health.conditions import Condition, Health, Transition
from agent.health.separation import Edited
from agent.observe.metrics import Metrics
from agent.observe.problems import Need, Problems, Subject
from kube.events import Regarding
from kube.reflector import ListWatch
from scheduler_core.wire import annotations
from scheduler_core.wire.faults import UpgradeReason
from scheduler_core.wire.pods import NpuPod

log = logging.getLogger(__name__)

_POD_CHIP_OUT = (
    "chip {chip} of this pod is out of service: {why}. The pod keeps the chip until it "
    "ends, also when its containers restart; delete the pod, and the one that replaces "
    "it gets other chips"
)
_POD_LINK_FAULTY = (
    "the network of chip {chip} of this pod is faulty: {why}. The pod keeps the chip "
    "until it ends; if its job stands still, delete the pod, and the one that replaces "
    "it gets other chips"
)
#: {new condition of a chip: type of its events, then reason and text of the Node's and
#: of that of the pod that has the chip}. RECOVERING has none: they come with HEALTHY
_EVENTS: Mapping[Condition, tuple[str, tuple[str, str], tuple[str, str]]] = {
    Condition.UNHEALTHY: (
        "Warning",
        ("NpuUnhealthy", "chip {chip} is out of service: {why}"),
        ("NpuUnhealthy", _POD_CHIP_OUT),
    ),
    Condition.NETWORK_UNHEALTHY: (
        "Warning",
        ("NpuNetworkUnhealthy", "the network of chip {chip} is faulty: {why}"),
        ("NpuNetworkUnhealthy", _POD_LINK_FAULTY),
    ),
    Condition.HEALTHY: (
        "Normal",
        ("NpuHealthy", "chip {chip} is healthy again"),
        ("NpuRecovered", "chip {chip} of this pod is healthy again"),
    ),
}


class Announcer:
    """Writer of the log lines, metrics and Kubernetes events of one agent."""

    def __init__(self, metrics: Metrics, problems: Problems) -> None:
        self.problems = problems
        self._record = problems.record
        self._metrics = metrics
        #: ledger stores, one for each product line
        self._stores: list[LedgerStore] = []
        #: {resource: health of its chips}
        self._health: dict[str, Health] = {}
        #: {resource: {chip: processes that keep it from being free}}
        self._releasing: dict[str, Mapping[int, tuple[Occupant, ...]]] = {}

    def count_ledger(self, store: LedgerStore) -> None:
        """Count the claims and holds of one product line's ledger in the metrics.

        The metrics `claims` and `holds` add up all ledgers passed to this method. They
        are computed at each scrape.
        """
        self._stores.append(store)
        if len(self._stores) > 1:
            return
        for gauge, counts in (
            (self._metrics.claims, _CLAIM_COUNTS),
            (self._metrics.holds, _HOLD_COUNTS),
        ):
            for state, count in counts.items():
                gauge.labels(state).set_function(partial(self._sum, count))

    def _sum(self, count: Callable[[Ledger], int]) -> int:
        return sum(count(store.ledger) for store in self._stores)

    def expose_watches(self, watches: Mapping[Need, ListWatch[Any]]) -> None:
        """Tell of watches that fail; expose their restarts and the age of their data.

        Data are events, bookmarks and lists. Ages are computed at each scrape.

        Args:
            watches: {need of the agent: its watch}. Failures and restarts count from
                now on.
        """
        now = asyncio.get_running_loop().time
        for need, watch in watches.items():
            name = need.name.lower().replace("_", "-")
            watch.tell_outcomes(partial(self.problems.tell_need, need))
            watch.count_restarts(self._metrics.watch_restarts.labels(name).inc)
            age = self._metrics.watch_event_age_s.labels(name)
            age.set_function(partial(_age_s, watch, now))

    def ledger_effect(self, effect: Effect) -> None:
        """Announce one effect of a ledger change by a counter, a log line or an event.

        `Counted` (how an Allocate's pod was identified) and `Refused` (an Allocate
        fails) each increase a counter. `Noted` (a warning about a pod) writes a log
        line, and a Kubernetes event if a ledger has the pod. Other effects are ignored.
        """
        match effect:
            case Counted(identity=identity):
                self._metrics.identity.labels(identity.value).inc()
            case Refused():
                self._metrics.allocate_refused.inc()
            case Noted():
                self._note(effect)
            case _:
                pass

    def _note(self, note: Noted) -> None:
        pods = (store.ledger.pods.get(note.uid) for store in self._stores)
        extra = {"pod_uid": note.uid, "reason": note.text}
        log.warning(note.reason, extra=extra)
        pod = next(filter(None, pods), None)
        if pod is not None:
            self._tell_pod(pod, note.reason, note.text, "Warning")

    def _tell_pod(self, pod: NpuPod, reason: str, message: str, kind: str) -> None:
        about = Regarding(
            kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid
        )
        self._record(reason, message, kind, about)

    def pod_chip_changed(
        self, pod: NpuPod, chip: int, condition: Condition, why: str
    ) -> None:
        """Tell a pod by an event in which condition a chip is that it has.

        Args:
            pod: The pod.
            chip: Physical id.
            condition: The new condition, never RECOVERING.
            why: Level and codes of the fault, or another reason; "" for a chip that is
                healthy again.
        """
        kind, _, (reason, text) = _EVENTS[condition]
        self._tell_pod(pod, reason, text.format(chip=chip, why=why), kind)

    def chips_changed(
        self,
        transitions: Iterable[Transition],
        health: Health,
        ledger: Ledger,
        *,
        resource: str,
    ) -> None:
        """Announce changed conditions of chips by log lines, metrics and Node events.

        A chip that becomes RECOVERING gets no event. The metric `chips` is set to the
        number of chips in each condition, for all resources together.

        Args:
            transitions: Changes that one reading has caused.
            health: Health of all chips of the product line, after the transitions.
            ledger: Says which pods have the chips; the Node's event names them.
            resource: Resource of the chips.
        """
        self._health[resource] = health
        for transition in transitions:
            condition = transition.after.value
            self._metrics.health_transitions.labels(condition).inc()
            extra = {"chip": transition.chip, "condition": condition}
            log.warning("chip changed", extra=extra | {"reason": transition.reason})
            if transition.after in _EVENTS:
                kind, (reason, text), _ = _EVENTS[transition.after]
                message = text.format(chip=transition.chip, why=transition.reason)
                self._record(reason, message + _users(ledger, transition.chip), kind)
        for condition_ in Condition:
            chips = sum(
                len(health_.chips_in(condition_)) for health_ in self._health.values()
            )
            self._metrics.chips.labels(condition_.value).set(chips)

    def chips_releasing(
        self, chips: Mapping[int, tuple[Occupant, ...]], *, resource: str
    ) -> None:
        """Set the metric of processes on releasing chips to their number on each chip.

        Args:
            chips: {chip: processes on it}, for all releasing chips of the resource. An
                empty tuple means that the processes are unknown, and counts as one.
            resource: Resource of the chips.
        """
        self._releasing[resource] = chips
        self._metrics.releasing.clear()
        for occupants_of in self._releasing.values():
            for chip, occupants in occupants_of.items():
                self._metrics.releasing.labels(str(chip)).set(max(1, len(occupants)))

    def names_edited(self, edited: Edited) -> None:
        """Announce in log and Node events what people did to `ManuallySeparateNPU`.

        They have taken chips out of service by adding their names to this key of the
        node's ConfigMap, or put chips back into service by removing names.
        """
        for chip in edited.separated:
            log.warning("chip separated by hand", extra={"chip": chip})
            self._record(
                "NpuSeparated",
                f"chip {chip} is out of service: ManuallySeparateNPU in the node's "
                "ConfigMap names it; remove the name to release it",
            )
        for chip in edited.released:
            log.info("chip released by hand", extra={"chip": chip})
            text = (
                f"chip {chip} was released: ManuallySeparateNPU does not name it any "
                "more"
            )
            self._record("NpuReleased", text, "Normal")

    def fault_level_changed(self, upgrade: UpgradeReason, *, is_over: bool) -> None:
        """Log that a fault got a higher level or lost it again.

        A fault gets a higher level because it returns or stays. When it gets the level
        ManuallySeparateNPU, a Node event is recorded, too.

        Args:
            upgrade: The chip, the fault code, the raised level, and the kind of rule
                that raised it.
            is_over: True if the raised level has ended, False if it begins.
        """
        extra = {
            "chip": upgrade.chip,
            "condition": upgrade.level,
            "reason": f"{upgrade.type} {upgrade.code}",
        }
        if is_over:
            log.info("fault has eased", extra=extra)
            return
        log.warning("fault has grown worse", extra=extra)
        if upgrade.level != Level.MANUALLY_SEPARATE.value:
            return
        self._record(
            "NpuSeparated",
            f"chip {upgrade.chip} is out of service: fault {upgrade.code} came too "
            "often. Once it is repaired, remove its name from ManuallySeparateNPU in "
            "the node's ConfigMap",
        )

    def journal_written(self, reason: str) -> None:
        """Log and count a write of the holds to the journal if it failed or was slow.

        Args:
            reason: Why the newest holds are not on disk; "" once they are.
        """
        self.problems.tell(Subject.JOURNAL, reason)
        if reason:
            self._metrics.journal_failures.inc()
            log.error("journal not written", extra={"reason": reason})

    def journal_unusable(self, reason: str) -> None:
        """Announce that the journal, the file with the holds, cannot be used.

        Args:
            reason: Path of the journal and its problem.
        """
        self._metrics.journal_failures.inc()
        log.error("journal cannot be used", extra={"reason": reason})
        self._record(
            "NpuJournalUnusable",
            f"{reason}. Who has which chip is found again through the kubelet and the "
            "pods' annotations; where that is not certain, both the chips of a pod's "
            "claim and those of its device ids stay reserved until it ends",
        )


def _users(ledger: Ledger, chip: int) -> str:
    """Return who has a chip, as the end of a sentence; "" if no pod has it."""
    pods = values.living_pods(ledger, chip)
    names = " and ".join(f"pod {pod.namespace}/{pod.name}" for pod in pods)
    return f"; {names} has it" if names else ""


def _count_served(ledger: Ledger) -> int:
    return sum(
        pod.annotations.get(annotations.PREDICATE_TIME) == str(annotations.SERVED)
        for pod in ledger.pods.values()
        if not pod.terminal
    )


def _count_confirmed(ledger: Ledger) -> int:
    return sum(hold.owner is not None for hold in ledger.holds.values())


#: {state of claims: function that counts them in a ledger}
_CLAIM_COUNTS: Mapping[str, Callable[[Ledger], int]] = {
    "waiting": lambda ledger: len(values.waiting_pods(ledger)),
    "served": _count_served,
    "unreadable": lambda ledger: len(ledger.problems),
    "without-chips": lambda ledger: len(ledger.bare),
}
#: {state of holds: function that counts them in a ledger}
_HOLD_COUNTS: Mapping[str, Callable[[Ledger], int]] = {
    "unconfirmed": lambda ledger: len(ledger.holds) - _count_confirmed(ledger),
    "confirmed": _count_confirmed,
    "lost": lambda ledger: sum(hold.lost for hold in ledger.holds.values()),
}


def _age_s(watch: ListWatch[Any], now: Callable[[], float]) -> float:
    return now() - watch.last_event_s
