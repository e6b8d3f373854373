"""Merge surveys: what a survey does not tell of a chip is as it was told last.

A chip whose codes cannot be read keeps its last ones, and gets those of its events. A
chip that has vanished counts as never read, until its codes are read again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agent.devices.board_size import UnknownMachineError
from agent.devices.dcmi.values import ChipState, Code, Identity, Survey


class ChipStates:
    """The last state of each chip.

    Its attribute `identities` is {physical id: all that was ever told of a chip}, also
    of missing chips.
    """

    def __init__(self, identities: Iterable[Identity]) -> None:
        """Start without the state of any chip.

        Args:
            identities: What earlier agents on this node have been told.
        """
        self.identities = {chip.physical_id: chip for chip in identities}
        #: {physical id: state as it was kept}
        self._last_states: dict[int, ChipState] = {}
        #: {physical id: {code: its events}} when the chip's codes were last read
        self._counts: dict[int, dict[int, int]] = {}

    def take(self, survey: Survey, now_ms: int) -> dict[int, ChipState]:
        """Return {physical id: state} of a survey, completed by earlier states.

        Each code then has when its fault began, and its events since it was last
        absent. A chip that cannot be identified now has its last state.

        Args:
            survey: States of all chips at one time.
            now_ms: Begin of each new fault that no event reported. Unit: Unix
                milliseconds.

        Raises:
            UnknownMachineError: Two chips have one physical id.
        """
        states = _by_id(survey.chips)
        #: whoever was there before has gone
        places = {look.identity.place for look in states.values()}
        for card, device, reason in survey.unidentified:
            for chip, last in self._last_states.items():
                at = last.identity
                is_there = at.card == card and device in (at.device, -1)
                if is_there and at.place not in places:
                    states[chip] = ChipState(identity=at, unread=reason)
        states = {
            chip: self._complete(look, now_ms) for chip, look in sorted(states.items())
        }
        others = {
            chip: known
            for chip, known in self.identities.items()
            if known.place not in places
        }
        self.identities = others | {c: look.identity for c, look in states.items()}
        return states

    def keep(self, states: Mapping[int, ChipState]) -> None:
        """Store the states of the chips that are served.

        What was read of a chip that has vanished is from before: it shows nothing while
        the chip's codes cannot be read, and its faults begin anew.

        Args:
            states: {physical id: state}; chips that were in earlier ones have vanished.
        """
        self._last_states |= states
        for chip in self._last_states.keys() - states.keys():
            last = self._last_states[chip]
            codes = tuple(replace(code, at_ms=None) for code in last.codes)
            self._last_states[chip] = replace(last, codes=codes, was_read=False)

    def _complete(self, state: ChipState, now_ms: int) -> ChipState:
        """Return `state`; what it does not tell comes from earlier states."""
        chip, is_read = state.identity.physical_id, not state.unread
        identity = state.identity.or_known(self.identities.get(chip, state.identity))
        last = self._last_states.get(chip, ChipState(identity=identity))
        last_codes = {code.code: code for code in last.codes}
        # events of a chip that is unread come again with its codes, and count then
        counts = self._counts.get(chip, {})
        codes = {
            code.code: _complete_code(
                code, last_codes.get(code.code), counts.get(code.code, 0), now_ms
            )
            for code in state.codes
        }
        if is_read:
            self._counts[chip] = {c.code: c.count for c in codes.values()}
        else:
            codes = last_codes | codes
        return replace(
            state,
            identity=identity,
            codes=tuple(codes.values()),
            pids=state.pids if is_read and not state.unread_pids else last.pids,
            was_read=is_read or last.was_read,
        )


def _complete_code(code: Code, last: Code | None, count: int, now_ms: int) -> Code:
    """Return a code with begin, all events, and its last severity if it has none.

    A fault begins with its event. It keeps this time, unless it has been over since.
    Another worker process knows no event from before it began.

    Args:
        code: As surveyed.
        last: As it was kept last; None if it is new.
        count: Its events before those of `code`.
        now_ms: Begin of a new fault without an event. Unit: Unix milliseconds.
    """
    at_ms = now_ms if code.at_ms is None else code.at_ms
    severity = code.severity
    if last is not None:
        severity = last.severity if severity is None else severity
        if last.at_ms is not None and not code.has_been_over:
            at_ms = last.at_ms
    return replace(code, severity=severity, at_ms=at_ms, count=count + code.count)


def _by_id(chip_states: Iterable[ChipState]) -> dict[int, ChipState]:
    states: dict[int, ChipState] = {}
    for look in chip_states:
        chip = look.identity.physical_id
        if chip in states:
            raise UnknownMachineError(f"the driver shows two chips with the id {chip}")
        states[chip] = look
    return states
