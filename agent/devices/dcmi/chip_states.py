"""Merge surveys: what a survey does not tell of a chip is as it was told last.

A chip whose codes cannot be read keeps its last ones, and gets those of its events. A
chip that has vanished counts as never read, until its codes are read again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agent.devices.board_size import UnknownMachineError
from agent.devices.dcmi.values import ChipState, Code, Identity, Survey


class ChipStates:
    """The last state of each chip, and when each of its faults began.

    Its attribute `identities` is {physical id: all that was ever told of a chip}, also
    of missing chips.
    """

    def __init__(self, identities: Iterable[Identity]) -> None:
        """Start without the state of any chip.

        Args:
            identities: What earlier agents on this node have been told.
        """
        self.identities = {chip.physical_id: chip for chip in identities}
        self._last_states: dict[int, ChipState] = {}
        self._since_ms: dict[tuple[int, int], int] = {}
        #: {(physical id, code): its events since it was last absent}
        self._event_counts: dict[tuple[int, int], int] = {}

    def take(self, survey: Survey) -> dict[int, ChipState]:
        """Return {physical id: state} of a survey, completed; see `_merge`.

        Raises:
            UnknownMachineError: Two chips have one physical id.
        """
        surveyed = _by_id(survey.chips)
        self._count_events(surveyed)
        return self._merge(surveyed, survey)

    def keep(self, states: Mapping[int, ChipState], now_ms: int) -> None:
        """Store the states of the chips that are served, and when their faults began.

        Args:
            states: {physical id: state}; chips that were in earlier ones have vanished.
            now_ms: Start date of each new fault that no event reported. Unit: Unix
                milliseconds.
        """
        self._last_states |= states
        self._forget_read(self._last_states.keys() - states.keys())
        self._date(states.values(), now_ms)

    def since_ms(self, look: ChipState, code: Code) -> int:
        """Return when a fault of a state that was kept began. Unit: Unix ms."""
        return self._since_ms[look.identity.physical_id, code.code]

    def count(self, look: ChipState, code: Code) -> int:
        """Return the number of a fault's events since it was last absent."""
        # events of an unread chip come again with its codes, and are counted then
        count = self._event_counts.get((look.identity.physical_id, code.code), 0)
        return count + (code.count if look.unread else 0)

    def _merge(
        self, surveyed: Mapping[int, ChipState], survey: Survey
    ) -> dict[int, ChipState]:
        """Return the states of a survey, with the last values of what it does not tell.

        A chip that was read before and cannot be identified now has its last state.

        Args:
            surveyed: {physical id: state} of `survey`.
            survey: Has the places that could not be identified.
        """
        states = dict(surveyed)
        for card, device, reason in survey.unidentified:
            for chip, last in self._last_states.items():
                place = last.identity
                if place.card == card and device in (place.device, -1):
                    gone = replace(last, codes=(), unread=reason)
                    states.setdefault(chip, gone)
        merged = {chip: self._complete(look) for chip, look in sorted(states.items())}
        self.identities |= {chip: look.identity for chip, look in merged.items()}
        return merged

    def _complete(self, state: ChipState) -> ChipState:
        """Return `state`; what it does not tell comes from earlier states."""
        chip = state.identity.physical_id
        last = self._last_states.get(chip)
        identity = state.identity.or_known(self.identities.get(chip, state.identity))
        if last is None:
            return replace(state, identity=identity, was_read=not state.unread)
        if state.unread:
            codes = _with_events(state.codes, last)
            return replace(last, identity=identity, codes=codes, unread=state.unread)
        return replace(
            state,
            identity=identity,
            codes=_with_severities(state.codes, last.codes),
            pids=last.pids if state.unread_pids else state.pids,
            was_read=True,
        )

    def _forget_read(self, vanished: Iterable[int]) -> None:
        """Let chips that have vanished count as never read, until they are read again.

        What was read of such a chip is from before, and shows nothing while its codes
        cannot be read.
        """
        for chip in vanished:
            last = self._last_states[chip]
            self._last_states[chip] = replace(last, was_read=False)

    def _date(self, states: Iterable[ChipState], now_ms: int) -> None:
        """Store the start time of each fault in `states`; forget those of other faults.

        A fault without a stored time gets the time of its event, or `now_ms` if it had
        no event. So does a fault that has been over and began again.
        """
        old_since_ms = self._since_ms
        self._since_ms = {}
        for look in states:
            for code in look.codes:
                key = look.identity.physical_id, code.code
                event_ms = now_ms if code.at_ms is None else code.at_ms
                self._since_ms[key] = (
                    event_ms if code.has_been_over else old_since_ms.get(key, event_ms)
                )

    def _count_events(self, states: Mapping[int, ChipState]) -> None:
        """Add the new events of each fault; forget those of faults that have gone.

        Args:
            states: {physical id: state} as surveyed, without earlier values.
        """
        known_chips = {chip for chip, state in states.items() if not state.unread}
        self._event_counts = {
            key: count
            for key, count in self._event_counts.items()
            if key[0] not in known_chips
        } | {
            (chip, code.code): self._event_counts.get((chip, code.code), 0) + code.count
            for chip in known_chips
            for code in states[chip].codes
        }


def _with_events(events: Iterable[Code], last: ChipState) -> tuple[Code, ...]:
    """Return the codes of a chip that is unread: its last ones, and those of events.

    Args:
        events: Codes of the events since the chip's codes were read.
        last: Last state of the chip; if it is unread too, it has earlier of these.
    """
    codes = {
        code.code: code if last.unread else replace(code, count=0)
        for code in last.codes
    }
    return tuple((codes | {code.code: code for code in events}).values())


def _with_severities(codes: Iterable[Code], last: Iterable[Code]) -> tuple[Code, ...]:
    """Return codes; one without a severity has that of the last reading.

    Another worker process knows no event from before it began.
    """
    severities = {code.code: code.severity for code in last}
    return tuple(
        replace(code, severity=severities.get(code.code))
        if code.severity is None
        else code
        for code in codes
    )


def _by_id(chip_states: Iterable[ChipState]) -> dict[int, ChipState]:
    states: dict[int, ChipState] = {}
    for look in chip_states:
        chip = look.identity.physical_id
        if chip in states:
            raise UnknownMachineError(f"the driver shows two chips with the id {chip}")
        states[chip] = look
    return states
