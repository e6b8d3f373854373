"""Turn reports of the driver into the health of one product line's chips.

Each fault in a report that has no level gets one from the cluster's fault
configuration. The levels decide each chip's health, and the ledger learns which chips
are unhealthy.

A separated chip is one that people or a rule have taken out of service. It is out of
service whatever the driver reports. The node's ConfigMap `mindx-dl-deviceinfo-<node>`
names the separated chips.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from agent.claims import values
from agent.claims.events import ChipsRead, ChipsUnreadable
from agent.claims.store import LedgerStore
from agent.devices.poller import Observation
from agent.devices.reading import Level, Reading
from agent.health import codes, escalation, rules, separation
from agent.health.conditions import UNREAD_S, Health, ReadingTaken, is_stable, step
from agent.health.findings import MOST_CHANGES, Change, Findings, SeparatedNames
from agent.health.judge import apply_levels, presences_under_rules
from agent.health.rules import FaultConfig
from agent.health.upgrades import KINDS, Kind, Upgrade
from agent.observe.announcer import Announcer
from agent.observe.problems import Subject
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import Product
from scheduler_core.wire import faults
from scheduler_core.wire.annotations import WireError, render_chips
from scheduler_core.wire.faults import UpgradeReason

log = logging.getLogger(__name__)


class ChipMonitor:
    """Monitor of one product line's chips, with their health and raised fault levels.

    A rule raises the level of a fault that returns often or stays long. The ConfigMap
    `mindx-dl-deviceinfo-<node>` stores the raised levels and the separated chips. The
    agent reads them there after a restart.
    """

    def __init__(
        self,
        store: LedgerStore,
        *,
        reading: Reading,
        recover_s: float,
        announcer: Announcer,
        wall_ms: Callable[[], int],
        other_products: Sequence[Product] = (),
    ) -> None:
        """Store a first report of the driver, and judge nothing yet.

        Args:
            store: Ledger that learns which chips cannot be given out.
            reading: First report of the driver about the product line.
            recover_s: How long a chip stays without faults before it is in service
                again. Unit: seconds.
            announcer: Writes events and logs when a chip's health changes, a fault
                rises in level, or a chip is separated (taken out of service).
            wall_ms: Returns the time of the day, in Unix milliseconds.
            other_products: The node's other product lines. Names of their chips in
                `mindx-dl-deviceinfo-<node>` are no errors.
        """
        self.product = reading.product
        self._other_products = tuple(other_products)
        self._store = store
        self._recover_s = recover_s
        self._announcer = announcer
        self._wall_ms = wall_ms
        self._config: FaultConfig = rules.DEFAULT
        #: Whether the last reading, judged again later, would give the same health.
        self._is_at_rest = False
        #: Last reading as the driver gave it, with the levels of the driver. Its date
        #: is that of the last observation.
        self._raw = reading
        #: {chip: time of the last reading that told its processes}. Unit: seconds.
        self._processes_read_s: dict[int, float] = {}
        self._courses = escalation.State()
        self._named = separation.State()
        #: Text of the ConfigMap that names separated chips; None: none was read yet.
        self._separated_text: str | None = None
        self._has_read_configmap = False
        #: {chip that people have separated: Unix milliseconds since when}
        self._by_hand_ms: dict[int, int] = {}
        #: Last reading with the levels that fault configuration and rules give.
        self.reading = reading
        self.health = Health()
        #: Last transitions, the newest last.
        self.changes: deque[Change] = deque(maxlen=MOST_CHANGES)

    # Inputs

    def observe(self, observation: Observation) -> bool:
        """Judge the health of this product line's chips by an observation of the node.

        An observation is not judged if it is stale or lacks this product line. An
        unchanged reading is not judged either, unless the health can change without a
        new one. But the ledger gets it if a pod with chips has ended: it shows what is
        left.

        Returns:
            Whether another observation is needed soon, even if the driver reports no
            change. With time, chips recover and faults rise in level. After a stale
            observation, another one is needed too, and while the ledger does not know
            what an ended pod has left on its chips.
        """
        node_reading = observation.reading
        if node_reading is None or observation.is_stale:
            return True
        reading = node_reading.line_of(self.product.resource)
        if reading is None:  # a product line that has vanished
            return True
        is_same, self._raw = reading == self._raw, reading
        if not (is_same and self._is_at_rest):
            self.judge_again()
        else:
            self._tell_ledger(is_news=False)
        return not self._is_at_rest or bool(self._store.ledger.ended_s)

    def lose_driver(self) -> None:
        """Have the ledger wait for no look: no chip has been read for `UNREAD_S`."""
        if not self._store.ledger.unreadable:
            self._store.apply(ChipsUnreadable())

    def apply_fault_config(self, config: FaultConfig) -> None:
        """Replace the fault configuration, and judge the driver's last report again."""
        self._config = config
        self.judge_again()

    def apply_configmap(self, data: Mapping[str, str] | None) -> None:
        """Apply the separated chips named by ConfigMap `mindx-dl-deviceinfo-<node>`.

        A separated chip is out of service. The first call also restores the raised
        fault levels that the agent wrote to this ConfigMap before a restart. In later
        calls, all names are ignored if the name of any chip cannot be parsed.

        Args:
            data: Data of one version of the ConfigMap; None if there is no ConfigMap.
        """
        is_first, self._has_read_configmap = not self._has_read_configmap, True
        text = None if data is None else data.get(faults.SEPARATED_KEY)
        problem = ""
        try:
            chips = self._chips_in(text)
        except WireError as error:
            # a mistyped name releases no chip: the other names may be missing, too
            problem, chips = str(error), None
        else:
            self._separated_text = text
        self._announcer.problems.tell(
            Subject.SEPARATED, problem, of=self.product.resource
        )
        if is_first:
            self._restore(data or {}, chips)
        elif text is None:
            self._step_separation(separation.NamesAbsent())
        elif chips is not None:
            self._step_separation(separation.NamesRead(chips))
        self.judge_again()

    def _chips_in(self, text: str | None) -> frozenset[int]:
        chips = faults.parse_separated(text or "", self.product, self._other_products)
        return frozenset(chips)

    def judge_again(self) -> None:
        """Judge the driver's last report again, and update the ledger.

        The report is as old as it is: no fault lasts and no chip recovers by that. The
        ledger learns which chips cannot be given out whole, and which are busy with
        processes.
        """
        before = self.reading
        self._step_escalation()
        self.reading = apply_levels(
            self._raw,
            self._config.table,
            upgrades=self._courses.upgrades,
            separated=self._named.separated,
        )
        look = ReadingTaken(
            reading=self.reading,
            in_use=frozenset(chip_sets.ids_of(values.held_chips(self._store.ledger))),
            recover_s=self._recover_s,
        )
        self.health, transitions = step(self.health, look, self._raw.read_s)
        self._announcer.chips_changed(
            transitions,
            self.health,
            self._store.ledger,
            resource=self.reading.product.resource,
        )
        now_ms = self._wall_ms()
        self.changes += (
            Change(at_ms=now_ms, transition=transition) for transition in transitions
        )
        self._tell_ledger(is_news=bool(transitions) or before != self.reading)
        self._is_at_rest = not self._courses.histories and is_stable(
            self.health, self.reading
        )

    def _tell_ledger(self, *, is_news: bool) -> None:
        """Tell the ledger which chips are unhealthy or busy, by the last reading.

        Args:
            is_news: Whether the node report has changed.
        """
        read_s = self._raw.read_s
        answered = set(self.reading.chips) - {chip.chip for chip in self.reading.unread}
        silent = set(self.health.chips) - answered  # those that have vanished, too
        self._processes_read_s |= dict.fromkeys(answered, read_s)
        # what the driver has not told for long the kernel alone tells
        unknown = {
            chip
            for chip in silent
            if read_s - self._processes_read_s.setdefault(chip, read_s) >= UNREAD_S
        }
        # a chip that is cut into virtual devices is not given out whole
        cut = {part.chip for part in self.reading.virtual}
        whole = set(self.health.in_service) - cut
        event = ChipsRead(
            unhealthy=chip_sets.mask_of(set(self.health.chips) - whole),
            busy=chip_sets.mask_of(
                process.chip
                for process in self.reading.processes
                if process.chip not in cut | unknown
            ),
            began_s=self._raw.looked_s,
            unread=chip_sets.mask_of(silent - unknown),
        )
        ledger, version = self._store.ledger, self._store.version
        is_known = (event.unhealthy, event.busy) == (ledger.unhealthy, ledger.busy)
        if not is_known or ledger.ended_s or ledger.unreadable:
            self._store.apply(event)
        if is_news and self._store.version == version:
            self._store.wake()  # the node report shows what the ledger does not hold

    # Outputs

    @property
    def looked_s(self) -> float:
        """When the look began that the last observation is from. Unit: seconds."""
        return self._raw.looked_s

    @property
    def findings(self) -> Findings:
        """Separated chips and raised fault levels to publish."""
        by_rule = {
            upgrade.chip for upgrade in self._courses.upgrades if _separates(upgrade)
        }
        by_hand = (
            UpgradeReason(
                chip=chip,
                code="",
                level=Level.MANUALLY_SEPARATE.value,
                type=Kind.AUTOFILL.value,
                time_ms=self._by_hand_ms.get(chip, 0),
            )
            for chip in sorted(self._named.separated - by_rule)
        )
        return Findings(
            separated=self._separated_names(),
            upgrades=(*map(self._reason, self._courses.upgrades), *by_hand),
        )

    def _separated_names(self) -> SeparatedNames:
        """Return the names of the separated chips, for `mindx-dl-deviceinfo-<node>`.

        If that ConfigMap already names exactly these chips, its text is returned
        unchanged.
        """
        chips, text = self._named.separated, self._separated_text
        names = render_chips(chips, self.product)
        shown = names if text is None or chips != self._chips_in(text) else text
        return SeparatedNames(text=shown, read=text, names=names)

    def _reason(self, upgrade: Upgrade) -> UpgradeReason:
        return UpgradeReason(
            chip=upgrade.chip,
            code=self._config.table.spelled(upgrade.code),
            level=upgrade.level.value,
            type=upgrade.kind.value,
            time_ms=upgrade.at_ms,
        )

    # Steps of the state machines

    def _step_escalation(self) -> None:
        """Raise and lower fault levels by the fault configuration's rules.

        Also separate chips (take them out of service) or put them back into service.
        """
        faults_read = escalation.FaultsRead(
            chips=self._raw.chips_read,
            present=presences_under_rules(self._raw),
            config=self._config,
            now_ms=self._raw.read_ms,
        )
        now = self._raw.read_s
        self._courses, effects = escalation.step(self._courses, faults_read, now)
        for effect in effects:
            upgrade = effect.upgrade
            reason = self._reason(upgrade)
            self._announcer.fault_level_changed(reason, is_over=effect.is_over)
            if not _separates(upgrade):
                continue
            if not effect.is_over:
                self._step_separation(separation.RuleSeparated(upgrade.chip))
            elif not any(
                _separates(other) and other.chip == upgrade.chip
                for other in self._courses.upgrades
            ):
                self._step_separation(separation.RuleReleased(upgrade.chip))

    def _step_separation(self, event: separation.Event) -> None:
        self._named, edited = separation.step(self._named, event)
        self._by_hand_ms |= dict.fromkeys(edited.separated, self._wall_ms())
        self._announcer.names_edited(edited)
        for chip in edited.released:
            self._courses = escalation.lift_separation(self._courses, chip)

    def _restore(self, data: Mapping[str, str], chips: frozenset[int] | None) -> None:
        """Restore separated chips and raised levels from `mindx-dl-deviceinfo-<node>`.

        Args:
            data: Data of that ConfigMap.
            chips: Chips that `data` names as separated. None if a name cannot be
                parsed. A chip is then separated if its own name can be parsed, or if a
                rule had separated it.
        """
        text = data.get(faults.UPGRADES_KEY, "{}")
        try:
            reasons = faults.parse_upgrades(text, self.product, self._other_products)
        except WireError as error:
            log.warning("levels of faults not restored", extra={"reason": str(error)})
            reasons = ()
        upgrades = tuple(
            upgrade
            for upgrade in filter(None, map(_upgrade, reasons))
            # people released the chip while no agent ran
            if not _separates(upgrade) or chips is None or upgrade.chip in chips
        )
        by_rule = {upgrade.chip for upgrade in upgrades if _separates(upgrade)}
        if chips is None:
            text = data.get(faults.SEPARATED_KEY, "")
            chips = frozenset(faults.parse_separated_names(text, self.product))
        self._named = separation.State(separated=chips | by_rule, confirmed=chips)
        # of a name that was written while no agent ran nobody knows when
        self._by_hand_ms = dict.fromkeys(self._named.separated, self._wall_ms()) | {
            reason.chip: reason.time_ms
            for reason in reasons
            if reason.type == Kind.AUTOFILL.value and reason.time_ms
        }
        now = self._raw.read_s
        self._courses = escalation.restore(self._courses, upgrades, now)


def _separates(upgrade: Upgrade) -> bool:
    """Whether a raised fault level takes its chip out of service."""
    return upgrade.level is Level.MANUALLY_SEPARATE


def _upgrade(reason: UpgradeReason) -> Upgrade | None:
    """Return the upgrade with this reason; None if none of our rules raised it."""
    try:
        level, kind = Level(reason.level), Kind(reason.type)
    except ValueError:
        return None
    if kind not in KINDS:
        return None
    code = codes.canonical(reason.code)
    return Upgrade(
        chip=reason.chip, code=code, level=level, kind=kind, at_ms=reason.time_ms
    )
