"""Tell people: one fact, one log line, one count, one event where it helps."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from agent.claims import values
from agent.claims.events import Counted, Effect, Noted, Refused
from agent.claims.store import Current
from agent.claims.values import Ledger
from agent.devices.processes import Occupant
from agent.devices.reading import Level
from agent.health.conditions import Condition, Health, Transition
from agent.observe import log as keys
from agent.observe.metrics import Metrics
from kube.events import Recorder, Regarding
from kube.reflector import ListWatch
from scheduler_core.wire import annotations
from scheduler_core.wire.faults import UpgradeReason

log = logging.getLogger(__name__)

#: Stands for processes that are there and cannot be seen.
_UNSEEN = Occupant(pid=0)
#: What two can fight over: the kubelet's resource, the node's ConfigMap.
RIVALS = ("kubelet", "configmap")

#: {condition that a chip has come into: reason, text and type of the event}
_TOLD: Mapping[Condition, tuple[str, str, str]] = MappingProxyType(
    {
        Condition.UNHEALTHY: (
            "NpuUnhealthy",
            "chip {chip} is out of service: {why}",
            "Warning",
        ),
        Condition.NETWORK_UNHEALTHY: (
            "NpuNetworkUnhealthy",
            "the network of chip {chip} is faulty: {why}",
            "Warning",
        ),
        Condition.HEALTHY: ("NpuHealthy", "chip {chip} is healthy again", "Normal"),
    }
)


class News:
    """Protects what was said last, so that nothing is said twice."""

    def __init__(self, metrics: Metrics, recorder: Recorder, *, node: str) -> None:
        """Have said nothing yet.

        Args:
            metrics: What is counted.
            recorder: Where events go.
            node: The node that we serve.
        """
        # as the kubelet writes it: kubectl finds it by the name in the uid's place
        self._node = Regarding(kind="Node", name=node, uid=node)
        self._metrics = metrics
        self._recorder = recorder
        #: of each product line
        self._currents: list[Current] = []
        self._health: dict[str, Health] = {}
        self._releasing: dict[str, Mapping[int, tuple[Occupant, ...]]] = {}
        self._driver_problem = ""
        self._fault_config = self._separation = ""
        #: {(what we have in common, product line): who}
        self._rivals: dict[tuple[str, str], str] = {}
        for of in RIVALS:
            metrics.rival.labels(of).set(0)

    def follow(self, current: Current) -> None:
        """Count the claims and holds of this ledger too whenever metrics are read."""
        self._currents.append(current)
        if len(self._currents) > 1:
            return
        for state in ("open", "served", "unreadable", "bare"):
            self._metrics.claims.labels(state).set_function(
                partial(self._claims, state)
            )
        for state in ("held", "confirmed", "lost"):
            self._metrics.holds.labels(state).set_function(partial(self._holds, state))

    def watches(self, **watches: ListWatch[Any]) -> None:
        """Show how these watches do whenever metrics are read.

        Args:
            watches: By the name of the resource.
        """
        now = asyncio.get_running_loop().time
        for name, watch in watches.items():
            restarts = self._metrics.watch_restarts.labels(name)
            restarts.set_function(partial(getattr, watch, "restarts"))
            age = self._metrics.watch_event_age_s.labels(name)
            age.set_function(partial(_age_s, watch, now))

    def tell(self, effect: Effect) -> None:
        """Tell one effect of the ledger."""
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
        known = (current.ledger.pods.get(note.uid) for current in self._currents)
        pod = next((pod for pod in known if pod is not None), None)
        extra = {keys.POD_UID: note.uid, keys.REASON: note.text}
        log.warning(note.reason, extra=extra)
        if pod is not None:
            about = Regarding(
                kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid
            )
            self._recorder.record(
                about, reason=note.reason, message=note.text, type="Warning"
            )

    def transitions(
        self, changes: Iterable[Transition], health: Health, *, line: str
    ) -> None:
        """Tell which chips have changed their condition.

        Args:
            changes: In their order.
            health: After them.
            line: The resource of these chips.
        """
        self._health[line] = health
        for change in changes:
            condition = change.after.name.lower()
            self._metrics.health_transitions.labels(condition).inc()
            log.warning(
                "chip changed",
                extra={
                    keys.CHIP: change.chip,
                    keys.CONDITION: condition,
                    keys.REASON: change.reason,
                },
            )
            self._record_transition(change)
        for condition_ in Condition:
            chips = sum(len(each.having(condition_)) for each in self._health.values())
            self._metrics.chips.labels(condition_.name.lower()).set(chips)

    def _record_transition(self, change: Transition) -> None:
        told = _TOLD.get(change.after)
        if told is None:  # a chip that recovers is told when it has
            return
        reason, text, kind = told
        self._recorder.record(
            self._node,
            reason=reason,
            message=text.format(chip=change.chip, why=change.reason),
            type=kind,
        )

    def releasing(
        self, chips: Mapping[int, tuple[Occupant, ...]], *, line: str
    ) -> None:
        """Show which processes keep chips from being free.

        Args:
            chips: {chip: its processes, none when they are not known}.
            line: The resource of these chips.
        """
        self._releasing[line] = chips
        self._metrics.releasing.clear()
        of_all = (items for of in self._releasing.values() for items in of.items())
        for chip, occupants in of_all:
            for each in occupants or (_UNSEEN,):
                pid = str(each.pid or "")
                self._metrics.releasing.labels(str(chip), pid, each.name).set(1)

    def still_used(self, chip: int, pod: str, occupants: tuple[Occupant, ...]) -> None:
        """Tell that a process stays on a chip that no pod has.

        Args:
            chip: Which.
            pod: Whose it was, `namespace/pod`; "" when nobody's.
            occupants: The processes; none when they are not known.
        """
        why = f"pod {pod} has gone" if pod else "no pod has it"
        named = ", ".join(f"process {who}" for who in occupants)
        who = named or "a process that cannot be seen from here"
        log.warning(
            "chip still in use",
            extra={keys.CHIP: chip, keys.REASON: f"{why}; {who}"},
        )
        self._recorder.record(
            self._node,
            reason="NpuStillInUse",
            message=(
                f"chip {chip} is not free, though {why}: {who} uses it. It is "
                "free as soon as that has ended"
            ),
            type="Warning",
        )

    def let_go(self, chip: int) -> None:
        """Tell that no process stays on a chip any more of which that was told."""
        log.info("chip no longer in use", extra={keys.CHIP: chip})
        self._recorder.record(
            self._node,
            reason="NpuNoLongerInUse",
            message=f"no process keeps chip {chip} from being free any more",
        )

    def driver(self, problem: str) -> None:
        """Tell that the hardware cannot be read, or can again."""
        if problem == self._driver_problem:
            return
        self._driver_problem = problem
        if problem:
            log.error("driver cannot be read", extra={keys.REASON: problem})
        else:
            log.info("driver is read again")

    def rival(self, of: str, text: str, *, line: str = "") -> None:
        """Tell that somebody else does our work, or no longer does.

        Args:
            of: What the two have in common: one of RIVALS.
            text: A sentence; "" when we are alone again.
            line: The resource that it is about; "" where it is about the node.
        """
        before = self._rivals.get((of, line), "")
        self._rivals[of, line] = text
        if text == before:
            return
        is_there = any(who for (what, _), who in self._rivals.items() if what == of)
        self._metrics.rival.labels(of).set(is_there)
        if text:
            log.error("rival", extra={keys.REASON: text})
        else:
            log.warning("rival has gone", extra={keys.REASON: of})
        gone = f"nobody else serves this node's {of} any more"
        if is_there:
            gone = f"nobody else serves {line} any more"
        self._recorder.record(
            self._node,
            reason="NpuRival" if text else "NpuRivalGone",
            message=text or gone,
            type="Warning" if text else "Normal",
        )

    def fault_config(self, problem: str) -> None:
        """Tell that the cluster's fault configuration cannot be used, or can again.

        Args:
            problem: A sentence; "" when it can be used.
        """
        before, self._fault_config = self._fault_config, problem
        self._metrics.fault_config_unusable.set(bool(problem))
        if problem == before:
            return
        if problem:
            log.error("fault configuration", extra={keys.REASON: problem})
        self._recorder.record(
            self._node,
            reason="NpuFaultConfigUnusable" if problem else "NpuFaultConfigUsable",
            message=problem or "the fault configuration can be used again",
            type="Warning" if problem else "Normal",
        )

    def separation(self, problem: str) -> None:
        """Tell that the names of separated chips cannot be read, or can again.

        Args:
            problem: Where and why; "" when they can be read.
        """
        before, self._separation = self._separation, problem
        if problem and problem != before:
            log.error("separated chips cannot be read", extra={keys.REASON: problem})
            self._recorder.record(
                self._node,
                reason="NpuSeparationUnreadable",
                message=(
                    f"{problem}. No chip is separated or released until it is right"
                ),
                type="Warning",
            )

    def separated(self, chips: Iterable[int]) -> None:
        """Tell that people have taken chips out of service by name."""
        for chip in chips:
            log.warning("chip separated by hand", extra={keys.CHIP: chip})
            self._recorder.record(
                self._node,
                reason="NpuSeparated",
                message=(
                    f"chip {chip} is out of service: ManuallySeparateNPU in the node's "
                    "ConfigMap names it; remove the name to release it"
                ),
                type="Warning",
            )

    def released(self, chips: Iterable[int]) -> None:
        """Tell that people have released chips that were separated."""
        for chip in chips:
            log.info("chip released by hand", extra={keys.CHIP: chip})
            self._recorder.record(
                self._node,
                reason="NpuReleased",
                message=(
                    f"chip {chip} was released: ManuallySeparateNPU does not name it "
                    "any more"
                ),
            )

    def escalation(self, why: UpgradeReason, *, is_over: bool) -> None:
        """Tell that a fault has another level for returning or staying, or had."""
        extra = {
            keys.CHIP: why.chip,
            keys.CONDITION: why.level,
            keys.REASON: f"{why.type} {why.code}",
        }
        if is_over:
            log.info("fault has eased", extra=extra)
            return
        log.warning("fault has grown worse", extra=extra)
        if why.level != Level.MANUALLY_SEPARATE.value:
            return
        self._recorder.record(
            self._node,
            reason="NpuSeparated",
            message=(
                f"chip {why.chip} is out of service: fault {why.code} came too often. "
                "Once it is repaired, remove its name from ManuallySeparateNPU in the "
                "node's ConfigMap"
            ),
            type="Warning",
        )

    def not_restored(self, problem: str) -> None:
        """Tell that the levels faults had before cannot be taken over."""
        log.warning("levels of faults not restored", extra={keys.REASON: problem})

    def journal_failed(self, why: str) -> None:
        """Tell that a hold was given out without being on disk."""
        self._metrics.journal_failures.inc()
        log.error("journal not written", extra={keys.REASON: why})

    def journal_unusable(self, why: str) -> None:
        """Tell that the journal of the last agent cannot be used."""
        self._metrics.journal_failures.inc()
        log.error("journal cannot be used", extra={keys.REASON: why})
        self._recorder.record(
            self._node,
            reason="NpuJournalUnusable",
            message=(
                f"{why}. Who has which chip is found again through the kubelet and the "
                "pods' annotations; where that is not certain, both the chips of a "
                "pod's claim and those of its device ids stay reserved until it ends"
            ),
            type="Warning",
        )

    def _claims(self, state: str) -> float:
        return sum(_claims(current.ledger, state) for current in self._currents)

    def _holds(self, state: str) -> float:
        return sum(_holds(current.ledger, state) for current in self._currents)


def _claims(ledger: Ledger, state: str) -> int:
    if state == "unreadable":
        return len(ledger.problems)
    if state == "bare":
        return len(ledger.bare)
    served = sum(
        pod.annotations.get(annotations.PREDICATE_TIME) == str(annotations.SERVED)
        for pod in ledger.pods.values()
        if not pod.terminal
    )
    waiting = sum(
        values.is_alive(ledger, uid) and not values.holds_of_pod(ledger, uid)
        for uid in ledger.slots
    )
    return served if state == "served" else waiting


def _holds(ledger: Ledger, state: str) -> int:
    holds = ledger.holds.values()
    if state == "lost":
        return sum(hold.lost for hold in holds)
    return sum((hold.owner is None) == (state == "held") for hold in holds)


def _age_s(watch: ListWatch[Any], now: Callable[[], float]) -> float:
    return now() - watch.last_event_s
