"""Announce changes on the node by log lines, metrics and Kubernetes events.

A lasting problem is announced once, and again only if it changes. Only a failed write
of the journal is logged each time.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from agent.claims import values
from agent.claims.events import Counted, Effect, Noted, Refused
from agent.claims.store import LedgerStore
from agent.claims.values import Ledger
from agent.devices.processes import Occupant
from agent.devices.reading import Level
from agent.health.conditions import Condition, Health, Transition
from agent.observe.metrics import Metrics
from kube.events import Recorder, Regarding
from kube.reflector import ListWatch
from scheduler_core.products.table import Product
from scheduler_core.wire import annotations
from scheduler_core.wire.faults import UpgradeReason

log = logging.getLogger(__name__)

#: {what a rival serves or writes, too: value of the label `kind`}: the kubelet's
#: resource, the node's ConfigMap.
RIVALS = MappingProxyType({"kubelet": "device-plugin", "configmap": "report-writer"})

#: {new condition of a chip: reason, text and type of the event}
_EVENTS: Mapping[Condition, tuple[str, str, str]] = MappingProxyType(
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


class Announcer:
    """Writer of the log lines, metrics and Kubernetes events of one agent.

    It remembers the lasting problems and the rivals that it announced, so that none is
    announced again without a change. A rival is another program that does this agent's
    work on the node.
    """

    def __init__(self, metrics: Metrics, recorder: Recorder, *, node: str) -> None:
        # as the kubelet does: kubectl finds events by the name in the uid's place
        self._node = Regarding(kind="Node", name=node, uid=node)
        self._metrics = metrics
        self._recorder = recorder
        #: ledger stores, one for each product line
        self._stores: list[LedgerStore] = []
        #: {resource: health of its chips}
        self._health: dict[str, Health] = {}
        #: {resource: {chip: processes that keep it from being free}}
        self._releasing: dict[str, Mapping[int, tuple[Occupant, ...]]] = {}
        #: {subject: its last problem, "" without one}
        self._problems: dict[str, str] = {}
        #: {(one of RIVALS, resource or ""): text about the rival, "" without one}
        self._rivals: dict[tuple[str, str], str] = {}
        for kind in RIVALS.values():
            metrics.rival.labels(kind).set(0)

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

    def expose_watches(self, watches: Mapping[str, ListWatch[Any]]) -> None:
        """Expose metrics of API server watches: restarts, and time since the last data.

        Data are events, bookmarks and lists. Ages are computed at each scrape.

        Args:
            watches: {label of the watched resource in the metrics: watch}. Their
                restarts are counted from now on.
        """
        now = asyncio.get_running_loop().time
        for name, watch in watches.items():
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
        pod = next((pod for pod in pods if pod is not None), None)
        extra = {"pod_uid": note.uid, "reason": note.text}
        log.warning(note.reason, extra=extra)
        if pod is not None:
            regarding = Regarding(
                kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid
            )
            self._recorder.record(
                regarding, reason=note.reason, message=note.text, type="Warning"
            )

    def chips_changed(
        self, transitions: Iterable[Transition], health: Health, *, resource: str
    ) -> None:
        """Announce changed conditions of chips by log lines, metrics and Node events.

        A chip that becomes RECOVERING gets no event. The metric `chips` is set to the
        number of chips in each condition, for all resources together.

        Args:
            transitions: Changes that one reading has caused.
            health: Health of all chips of the resource, after the transitions.
            resource: Resource of the chips.
        """
        self._health[resource] = health
        for transition in transitions:
            condition = transition.after.value
            self._metrics.health_transitions.labels(condition).inc()
            extra = {"chip": transition.chip, "condition": condition}
            log.warning("chip changed", extra=extra | {"reason": transition.reason})
            event = _EVENTS.get(transition.after)
            if event is not None:  # RECOVERING: the event comes with HEALTHY
                reason, text, kind = event
                message = text.format(chip=transition.chip, why=transition.reason)
                self._record(reason, message, kind)
        for condition_ in Condition:
            chips = sum(
                len(health_.chips_in(condition_)) for health_ in self._health.values()
            )
            self._metrics.chips.labels(condition_.value).set(chips)

    def _record(self, reason: str, message: str, kind: str = "Warning") -> None:
        """Emit an event on the Node; `kind` is the event's type."""
        self._recorder.record(self._node, reason=reason, message=message, type=kind)

    def _is_new(self, subject: str, problem: str) -> bool:
        """Store a subject's problem; return whether it differs from the last one."""
        before, self._problems[subject] = self._problems.get(subject, ""), problem
        return problem != before

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

    def chip_still_used(
        self, chip: int, pod: str, occupants: tuple[Occupant, ...]
    ) -> None:
        """Announce that processes still use a chip that no pod has any more.

        A log line and an event on the Node are written.

        Args:
            chip: Physical id.
            pod: Pod that had the chip most recently, as `namespace/pod`; "" if it is
                unknown.
            occupants: Processes on the chip; empty if they are unknown.
        """
        why = f"pod {pod} has gone" if pod else "no pod has it"
        names = ", ".join(f"process {occupant}" for occupant in occupants)
        users = names or "a process that cannot be seen from here"
        extra = {"chip": chip, "reason": f"{why}; {users}"}
        log.warning("chip still in use", extra=extra)
        self._record(
            "NpuStillInUse",
            f"chip {chip} is not free, though {why}: {users} uses it. It is free as "
            "soon as that has ended",
        )

    def chip_no_longer_used(self, chip: int) -> None:
        """Announce by log and Node event that no process blocks a chip any more.

        Called only for chips that `chip_still_used` has announced.
        """
        log.info("chip no longer in use", extra={"chip": chip})
        text = f"no process keeps chip {chip} from being free any more"
        self._record("NpuNoLongerInUse", text, "Normal")

    def start_problem(self, problem: str) -> None:
        """Announce why the agent cannot begin to serve chips yet.

        Args:
            problem: Why the driver shows no chips, or not all of them.
        """
        if self._is_new("start", problem):
            log.error("chips not served yet", extra={"reason": problem})
            self._record("NpuNotServed", problem)

    def chips_read(self, rows: Iterable[Product]) -> None:
        """Announce by which rows the node is served, if it was not served before.

        Nothing is announced if neither `start_problem` nor `began_anew` was.
        """
        if self._is_new("start", ""):
            keys = " and ".join(row.key for row in rows)
            log.info("chips are read", extra={"reason": keys})
            text = f"the chips are read, and the node is served as {keys}"
            self._record("NpuServed", text, "Normal")

    def changed_row(self, text: str) -> None:
        """Announce that the node has to be served by other rows of the product table.

        Args:
            text: What shows that; "" if nothing does. Nothing is announced for the text
                of the previous call.
        """
        if not self._is_new("row", text):
            return
        if text:
            log.warning("other product row", extra={"reason": text})
            message = f"the node is served by the wrong product row: {text}"
            self._record("NpuProductChanged", message)
        else:
            log.info("right product row")
            message = "the chips are those of the product row again"
            self._record("NpuServed", message, "Normal")

    def began_anew(self, text: str) -> None:
        """Announce that the agent has begun anew, with other rows.

        Args:
            text: What has contradicted the rows before; "" if the agent did not begin
                anew, and nothing is announced.
        """
        if text:
            self._problems["start"] = text
            log.warning("the agent begins anew", extra={"reason": text})
            self._record("NpuProductChanged", f"the agent begins anew: {text}")

    def driver_problem(self, problem: str) -> None:
        """Log that the driver cannot be read, or that it can be read again.

        Args:
            problem: Reason why no chip can be read; "" if any can be read. A reason
                equal to that of the previous call is not logged again.
        """
        if not self._is_new("driver", problem):
            return
        if problem:
            log.error("driver cannot be read", extra={"reason": problem})
        else:
            log.info("driver is read again")

    def chips_problem(self, problem: str) -> None:
        """Log that single chips cannot be read, or that all can be read again.

        Args:
            problem: The chips, each with the reason; "" if all can be read. Chips and
                reasons equal to those of the previous call are not logged again.
        """
        if not self._is_new("chips", problem):
            return
        if problem:
            log.error("chips cannot be read", extra={"reason": problem})
        else:
            log.info("all chips are read again")

    def readings_old(self, problem: str, since_ms: int | None) -> None:
        """Announce on the Node that no chip has been read for long, or is read again.

        Args:
            problem: A sentence about that; "" while it does not last long.
            since_ms: Time of the last reading. One event is sent for each such time.
                None if it is not old. Unit: Unix milliseconds.
        """
        if problem and self._is_new("readings", str(since_ms)):
            self._record("NpuUnreadable", problem)
        if since_ms is None and self._is_new("readings", ""):
            self._record("NpuReadable", "the chips are read again", "Normal")

    def rival_state(self, scope: str, text: str, *, resource: str = "") -> None:
        """Announce that a rival of this agent appears, changes or disappears.

        A rival is another program that serves a resource of this agent to the kubelet,
        or writes the node's ConfigMap. Nothing is announced if `text` equals that of
        the previous call for the same scope and resource.

        Args:
            scope: "kubelet" if the rival serves a resource, "configmap" if it writes
                the ConfigMap.
            text: A sentence about the rival; "" if there is no rival.
            resource: Resource that the rival serves; "" for a rival that writes the
                ConfigMap.
        """
        before = self._rivals.get((scope, resource), "")
        self._rivals[scope, resource] = text
        if text == before:
            return
        has_rival = any(
            rival for (scope_, _), rival in self._rivals.items() if scope_ == scope
        )
        self._metrics.rival.labels(RIVALS[scope]).set(has_rival)
        if text:
            log.error("rival", extra={"reason": text})
        else:
            log.warning("rival has gone", extra={"reason": scope})
        end_text = f"nobody else serves this node's {scope} any more"
        if has_rival:
            end_text = f"nobody else serves {resource} any more"
        if text:
            self._record("NpuRival", text)
        else:
            self._record("NpuRivalGone", end_text, "Normal")

    def fault_config_problem(self, problem: str) -> None:
        """Announce which parts of the fault configuration are not used, if any.

        Args:
            problem: A sentence that names these parts; "" if there are none. Nothing is
                announced if the sentence is that of the previous call.
        """
        self._metrics.fault_config_unusable.set(bool(problem))
        if not self._is_new("fault configuration", problem):
            return
        if problem:
            log.error("fault configuration", extra={"reason": problem})
            self._record("NpuFaultConfigUnusable", problem)
        else:
            text = "all of the fault configuration is used again"
            self._record("NpuFaultConfigUsable", text, "Normal")

    def label_problem(self, problem: str) -> None:
        """Announce that labels of the Node contradict the chips.

        Args:
            problem: A sentence about that; "" if none does. Nothing is announced if the
                sentence is that of the previous call.
        """
        if not self._is_new("label", problem):
            return
        if problem:
            log.warning("label contradicts the chips", extra={"reason": problem})
            self._record("NpuLabelWrong", problem)
        else:
            text = "no label of the node contradicts the chips any more"
            self._record("NpuLabelRight", text, "Normal")

    def report_problem(self, problem: str) -> None:
        """Announce that the API server does not take the node's ConfigMap.

        Args:
            problem: A sentence about that; "" if it takes it. Nothing is announced if
                the sentence is that of the previous call.
        """
        if not self._is_new("report", problem):
            return
        if problem:
            log.error("report refused", extra={"reason": problem})
            self._record("NpuReportRefused", problem)
        else:
            text = "the node's ConfigMap is written again"
            self._record("NpuReportWritten", text, "Normal")

    def pod_resources_problem(self, problem: str, *, resource: str) -> None:
        """Announce that the kubelet does not say which pod has which chips.

        Args:
            problem: A sentence about that; "" if it says so again. Nothing is announced
                if the sentence is that of the previous call about the resource.
            resource: Resource of the chips.
        """
        if not self._is_new(f"pod-resources {resource}", problem):
            return
        if problem:
            log.error("pod-resources do not answer", extra={"reason": problem})
            self._record("NpuPodsUnknown", problem)
        else:
            text = "it is known again which pod has which chips"
            self._record("NpuPodsKnown", text, "Normal")

    def separation_problem(self, problem: str) -> None:
        """Announce that the names of separated chips cannot be parsed.

        People and rules write these names under the key `ManuallySeparateNPU` of the
        node's ConfigMap `mindx-dl-deviceinfo-<node>`.

        Args:
            problem: Why the text cannot be parsed; "" if it can. Nothing is announced
                for "", or for the problem of the previous call.
        """
        if self._is_new("separated chips", problem) and problem:
            log.error("separated chips cannot be read", extra={"reason": problem})
            self._record(
                "NpuSeparationUnreadable",
                f"{problem}. No chip is separated or released until it is right",
            )

    def chips_separated(self, chips: Iterable[int]) -> None:
        """Announce in log and Node events that a person took chips out of service.

        The person has added the chips' names to `ManuallySeparateNPU` in the node's
        ConfigMap `mindx-dl-deviceinfo-<node>`.
        """
        for chip in chips:
            log.warning("chip separated by hand", extra={"chip": chip})
            self._record(
                "NpuSeparated",
                f"chip {chip} is out of service: ManuallySeparateNPU in the node's "
                "ConfigMap names it; remove the name to release it",
            )

    def chips_released(self, chips: Iterable[int]) -> None:
        """Announce in log and Node events that a person put chips back into service.

        The person has removed the chips' names from `ManuallySeparateNPU` in the node's
        ConfigMap `mindx-dl-deviceinfo-<node>`.
        """
        for chip in chips:
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

    def fault_levels_not_restored(self, problem: str) -> None:
        """Log that fault levels raised before the agent's restart cannot be restored.

        Args:
            problem: Why the raised levels in the node's ConfigMap cannot be parsed.
        """
        log.warning("levels of faults not restored", extra={"reason": problem})

    def journal_failed(self, reason: str) -> None:
        """Log and count a failed or slow write of the holds to the journal on disk.

        Args:
            reason: Reason why the newest holds are not on disk.
        """
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
