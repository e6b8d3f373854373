"""What is the matter with the chips: each reading, judged, and what follows from it.

driver ----------------> judged -> health -> ledger
fault configuration -------^
ConfigMap's separated chips^
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent.claims import values
from agent.claims.events import ChipsRead
from agent.claims.store import Current
from agent.devices.poller import Observation
from agent.devices.reading import Level, Reading
from agent.health import codes, escalation, rules, separation, switches
from agent.health.conditions import Health, Look, is_settled, step
from agent.health.escalation import Eased, Kind, Upgrade, Upgraded
from agent.health.findings import MOST_CHANGES, Change, Findings, Separated
from agent.health.judge import followed, judged
from agent.health.rules import FaultConfig
from agent.observe.announcer import News
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import Product
from scheduler_core.wire import faults
from scheduler_core.wire.annotations import WireError
from scheduler_core.wire.faults import SwitchEvent, SwitchInfo, UpgradeReason


@dataclass(frozen=True, slots=True)
class Clocks:
    """The two times that a diagnosis needs."""

    #: The event loop's. Unit: seconds.
    loop_s: Callable[[], float]
    #: Of the day, for what people read. Unit: Unix milliseconds.
    wall_ms: Callable[[], int]


class Diagnosis:
    """Protects the health of the chips, and what is known of their faults over time.

    Chips that are separated by name are the ConfigMap's to remember, and so are the
    levels that faults have got: both are read from it after a restart.
    """

    def __init__(
        self,
        current: Current,
        *,
        reading: Reading,
        recover_s: float,
        news: News,
        clocks: Clocks,
        beside: Sequence[Product] = (),
    ) -> None:
        """Take a first look.

        Args:
            current: The ledger, which is told of chips that cannot be given out.
            reading: The first look at the hardware.
            recover_s: The hold-off. Unit: seconds.
            news: Who is told of changes.
            clocks: Where times come from.
            beside: The node's other product lines: people name their chips as well.
        """
        self.product = reading.product
        self._beside = tuple(beside)
        self._current = current
        self._recover_s = recover_s
        self._news = news
        self._clocks = clocks
        self._config: FaultConfig = rules.DEFAULT
        #: Whether nothing more would come of what was read last, by time or by pods.
        self._is_at_rest = False
        #: As the driver gave it.
        self._raw = reading
        self._courses = escalation.State()
        self._named = separation.State()
        #: What the ConfigMap says of separated chips; None: nothing was read yet.
        self._read: str | None = None
        self._has_read = False
        #: {chip that people have separated: since when, in Unix milliseconds}
        self._by_hand_ms: dict[int, int] = {}
        #: With the levels of all faults.
        self.reading = reading
        self.health = Health()
        #: The newest last.
        self.changes: deque[Change] = deque(maxlen=MOST_CHANGES)

    # What is told from outside

    def observed(self, seen: Observation) -> bool:
        """Take in a look at the hardware.

        Returns:
            Whether the next is wanted soon, though the hardware has no news: chips
            recover by time passing, and faults grow worse by it.
        """
        if seen.reading is None or seen.is_stale:
            return True
        if seen.reading != self._raw or not self._is_at_rest:
            self._raw = seen.reading
            self.look()
        return not self._is_at_rest

    def configured(self, config: FaultConfig) -> None:
        """Judge by another fault configuration from now on."""
        self._config = config
        self.look()

    def reported(self, data: Mapping[str, str] | None) -> None:
        """Take in what the node's ConfigMap says.

        Args:
            data: Its data, of each version in turn; None when there is none.
        """
        is_first, self._has_read = not self._has_read, True
        text = None if data is None else data.get(faults.SEPARATED_KEY)
        try:
            chips = self._chips_in(text)
        except WireError as error:
            # whoever mistypes a name has not released the chips that he did not name
            self._news.separation(str(error))
            chips = None
        else:
            self._news.separation("")
            self._read = text
        if is_first:
            self._restore(data or {}, chips)
        elif text is None:
            self._step_named(separation.Unnamed())
        elif chips is not None:
            self._step_named(separation.Named(chips))
        self.look()

    def _chips_in(self, text: str | None) -> frozenset[int]:
        named = faults.parse_separated(text or "", self.product, self._beside)
        return frozenset(named)

    def look(self) -> None:
        """Judge what was read last, and tell the ledger what it has to know."""
        before = self.reading
        self._follow()
        self.reading = judged(
            self._raw,
            self._config.table,
            upgrades=self._courses.upgrades,
            separated=self._named.separated,
        )
        look = Look(
            reading=self.reading,
            in_use=frozenset(chip_sets.ids_of(values.held(self._current.ledger))),
            recover_s=self._recover_s,
        )
        self.health, transitions = step(self.health, look, self._clocks.loop_s())
        self._news.transitions(
            transitions, self.health, line=self.reading.product.resource
        )
        now_ms = self._clocks.wall_ms()
        self.changes += (Change(at_ms=now_ms, transition=each) for each in transitions)
        # a chip that is given out in parts is not given out whole
        cut = {part.chip for part in self.reading.virtual}
        whole = set(self.health.in_service) - cut
        event = ChipsRead(
            unhealthy=chip_sets.mask_of(set(self.health.chips) - whole),
            busy=chip_sets.mask_of(
                use.chip for use in self.reading.processes if use.chip not in cut
            ),
        )
        ledger = self._current.ledger
        if (event.unhealthy, event.busy) != (ledger.unhealthy, ledger.busy):
            self._current.apply(event)
        elif transitions or before != self.reading:
            self._current.wake()  # the report says more than the ledger
        self._is_at_rest = not self._courses.courses and is_settled(
            self.health, self.reading
        )

    # What others read

    @property
    def findings(self) -> Findings:
        """What is to be published of faults beside the reading."""
        by_rule = {
            upgrade.chip for upgrade in self._courses.upgrades if _takes(upgrade)
        }
        by_hand = sorted(self._named.separated - by_rule)
        return Findings(
            separated=self._separated(),
            upgrades=(
                *(self._reason(upgrade) for upgrade in self._courses.upgrades),
                *(_by_hand(chip, self._by_hand_ms.get(chip, 0)) for chip in by_hand),
            ),
            switch=self._switch(),
        )

    def _separated(self) -> Separated:
        """Return the names of separated chips, spelled as they stand if they do."""
        wanted, read = self._named.separated, self._read
        names = faults.render_separated(wanted, self.product)
        if read is None or wanted != self._chips_in(read):
            return Separated(text=names, read=read, names=names)
        return Separated(text=read, read=read, names=names)

    def _reason(self, upgrade: Upgrade) -> UpgradeReason:
        return UpgradeReason(
            chip=upgrade.chip,
            code=self._config.table.spelled(upgrade.code),
            level=upgrade.level.value,
            type=upgrade.kind.value,
            time_ms=upgrade.at_ms,
        )

    def _switch(self) -> SwitchInfo:
        found, levels = self._raw.switch_faults, self._config.switch
        worst = switches.worst(found, levels)
        return SwitchInfo(
            level=worst.value if worst else "",
            events=tuple(
                SwitchEvent(
                    event_type=fault.event_type,
                    code=fault.code,
                    peer=fault.peer,
                    peer_port=fault.peer_port,
                    chip=fault.chip,
                    port=fault.port,
                    severity=fault.severity,
                    level=switches.level(fault, levels).value,
                    time_ms=fault.since_ms,
                )
                for fault in found
            ),
        )

    # What follows

    def _follow(self) -> None:
        """Let faults grow worse by returning or staying, and let them ease."""
        looked = escalation.Looked(
            chips=frozenset(self._raw.chips),
            present=followed(self._raw),
            config=self._config,
            now_ms=self._clocks.wall_ms(),
        )
        self._courses, effects = escalation.step(
            self._courses, looked, self._clocks.loop_s()
        )
        for effect in effects:
            upgrade = effect.upgrade
            self._news.escalation(
                self._reason(upgrade), is_over=effect == Eased(upgrade)
            )
            if not _takes(upgrade):
                continue
            if isinstance(effect, Upgraded):
                self._step_named(separation.Separated(upgrade.chip))
            elif not any(
                _takes(other) and other.chip == upgrade.chip
                for other in self._courses.upgrades
            ):
                self._step_named(separation.Released(upgrade.chip))

    def _step_named(self, event: separation.Event) -> None:
        self._named, effects = separation.step(self._named, event)
        for effect in effects:
            match effect:
                case separation.TakenOut(chips):
                    now_ms = self._clocks.wall_ms()
                    self._by_hand_ms |= dict.fromkeys(chips, now_ms)
                    self._news.separated(chips)
                case separation.LetBack(chips):
                    self._news.released(chips)
                    self._pardon(chips)

    def _pardon(self, chips: tuple[int, ...]) -> None:
        for chip in chips:
            event = escalation.Pardoned(chip)
            self._courses, _ = escalation.step(
                self._courses, event, self._clocks.loop_s()
            )

    def _restore(self, data: Mapping[str, str], chips: frozenset[int] | None) -> None:
        """Take over what was in force when the agent before us ended.

        Args:
            data: Of the ConfigMap.
            chips: Those that it names; None: its text cannot be read, and whatever a
                rule has separated stays so, and what can be read in it.
        """
        text = data.get(faults.UPGRADES_KEY, "{}")
        try:
            reasons = faults.parse_upgrades(text, self.product, self._beside)
        except WireError as error:
            self._news.not_restored(str(error))
            reasons = ()
        upgrades = tuple(
            upgrade
            for upgrade in (_upgrade(reason) for reason in reasons if _is_ours(reason))
            # released while nobody was there
            if not _takes(upgrade) or chips is None or upgrade.chip in chips
        )
        by_rule = {upgrade.chip for upgrade in upgrades if _takes(upgrade)}
        if chips is None:
            text = data.get(faults.SEPARATED_KEY, "")
            readable = frozenset(faults.readable_separated(text, self.product))
            self._named = separation.State(
                separated=readable | by_rule, confirmed=readable
            )
        else:
            self._named = separation.State(separated=chips, confirmed=chips)
        self._by_hand_ms = {
            reason.chip: reason.time_ms
            for reason in reasons
            if reason.type == Kind.AUTOFILL.value
        }
        self._courses, _ = escalation.step(
            self._courses, escalation.Restored(upgrades), self._clocks.loop_s()
        )


def _takes(upgrade: Upgrade) -> bool:
    """Tell whether an upgrade separates its chip by name."""
    return upgrade.level is Level.MANUALLY_SEPARATE


def _by_hand(chip: int, at_ms: int) -> UpgradeReason:
    return UpgradeReason(
        chip=chip,
        code="",
        level=Level.MANUALLY_SEPARATE.value,
        type=Kind.AUTOFILL.value,
        time_ms=at_ms,
    )


def _is_ours(reason: UpgradeReason) -> bool:
    """Tell whether a reason of before can be followed further."""
    levels = {level.value for level in Level}
    kinds = {Kind.FREQUENCY.value, Kind.DURATION.value}
    return reason.level in levels and reason.type in kinds


def _upgrade(reason: UpgradeReason) -> Upgrade:
    return Upgrade(
        chip=reason.chip,
        code=codes.canonical(reason.code),
        level=Level(reason.level),
        kind=Kind(reason.type),
        at_ms=reason.time_ms,
    )
