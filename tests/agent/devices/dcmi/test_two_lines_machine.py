"""Two product lines on one node, whatever the driver and those around it do.

The driver fails, hangs and is late, workers are killed, cards come and go, faults come
and go, pods leave processes behind, and people edit the fault configuration, in
simulated time. Laws:

    a chip whose codes are told at each look never leaves service
    no chip is out of service for longer than its last bad answer, 15 s and the hold-off
    no chip is released or given out while a process of an ended pod is on it
    what is published as new was read after the last publication
    a level is raised because a fault stayed only if looks have shown it for so long
    while one call of one chip hangs for ever, looks go on
    a worker that loads the library is not ended within the time for that
    once all is well, all chips are in service and free
"""

import json
import tempfile
from dataclasses import dataclass
from math import inf
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agent.devices.dcmi.library import LEFT_OUT, MEANINGS
from agent.devices.dcmi.reader import DROPPED
from agent.devices.dcmi.values import Identity
from agent.health import fault_config
from agent.health.conditions import UNREAD_S, Condition
from tests.agent.devices.played_library import ANY
from tests.agent.devices.rude_library import Answer, Hang, RudeLibrary, Word
from tests.agent.devices.scripted_library import FUNCTIONS
from tests.agent.driven_node import (
    POLL_S,
    RECOVER_S,
    UNKNOWN_S,
    DrivenNode,
    Line,
)
from tests.support.examples import examples
from tests.support.simulated_loop import SimulatedLoop

#: The longest that a worker may load the library.
LOAD_S = 60.0
#: A look at a chip, its message, and two observations of that.
SLACK_S = 1.0 + 2 * POLL_S
#: After which a hang of one call costs no more looks: two deadlines, and the longest
#: pause between two workers.
BLIND_S = 60.0

FIRST = [
    Identity(
        card=chip,
        device=0,
        physical_id=chip,
        logic_id=chip,
        name="910A",
        ai_core_count=32,
        board_id=0x40,
        ip=f"10.0.0.{chip}",
    )
    for chip in range(4)
]
SECOND = [
    Identity(
        card=chip,
        device=0,
        physical_id=chip,
        logic_id=chip,
        name="310P3",
        ai_core_count=8,
        board_id=0x10,
        product_type="Atlas 300I Pro",
    )
    for chip in range(4, 7)
]
ALL = range(7)

#: A fault that takes a chip out of service, one that never does, one of the network,
#: and one that does if it stays.
BAD, MILD, NETWORK, LASTING = 0x80E18402, 0x80E3A207, 0x81078603, 0x8C2FA001
STAYS_S, GONE_S = 20.0, 5.0


def _config(
    *, separate: tuple[int, ...], mild: tuple[int, ...], is_timed: bool = False
) -> dict[str, str]:
    def names(codes: tuple[int, ...]) -> list[str]:
        return [f"{code:08X}" for code in codes]

    rule_of_time = {
        "EventId": names((LASTING,)),
        "FaultTimeout": int(STAYS_S),
        "RecoverTimeout": int(GONE_S),
        "FaultHandling": "SeparateNPU",
    }
    levels = {
        "SeparateNPUCodes": names(separate),
        "NotHandleFaultCodes": names(mild),
        "SubHealthFaultNetworkCodes": names((NETWORK,)),
    }
    customized = {"FaultDuration": [rule_of_time] if is_timed else []}
    return {
        fault_config.CODES_KEY: json.dumps(levels),
        fault_config.CUSTOM_KEY: json.dumps(customized),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """A fault configuration, and what it makes of codes."""

    data: dict[str, str]
    #: codes that take a chip out of service
    bad: frozenset[int]
    is_timed: bool = False


CONFIGURED = {
    name: Configured(
        data=_config(separate=bad, mild=mild, is_timed=is_timed),
        bad=frozenset(bad),
        is_timed=is_timed,
    )
    for name, bad, mild, is_timed in (
        ("usual", (BAD, DROPPED), (MILD, LASTING), False),
        ("lenient", (DROPPED,), (MILD, LASTING, BAD), False),
        ("strict", (BAD, DROPPED, MILD), (LASTING,), False),
        ("timed", (BAD, DROPPED), (MILD, LASTING), True),
    )
}

METHODS = [method for method in FUNCTIONS if method not in {"can_subscribe", "version"}]
LOOKS = ["codes", "check_ready", "pids"]
ERRORS = [code for code in MEANINGS if code != LEFT_OUT]
IN_SERVICE = {Condition.HEALTHY, Condition.NETWORK_UNHEALTHY}

chips = st.integers(0, 6)
anywhere = st.one_of(chips, st.just(ANY))
#: What passes after something was done. Unit: seconds.
pauses = st.sampled_from([0.0, 0.5, 2.0, 6.0, 12.0, 30.0])
methods = st.one_of(st.sampled_from(LOOKS), st.sampled_from(METHODS))


class TwoLines(RuleBasedStateMachine):
    """A node, what is done to it, and the laws."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = SimulatedLoop()
        self.folder = tempfile.TemporaryDirectory()
        self.node: DrivenNode | None = None

    @initialize(has_events=st.booleans(), load_s=st.sampled_from([0.0, 3.0, 40.0]))
    def begin(self, *, has_events: bool, load_s: float) -> None:
        """All is well at first, but that loading may last."""
        path = Path(self.folder.name, "libdcmi.so")
        path.touch(mode=0o644)
        self.library = RudeLibrary([*FIRST, *SECOND], now_s=self.loop.time)
        self.library.has_events = has_events
        self.library.load_s = load_s
        self.node = DrivenNode(self.loop, self.library, path)
        #: {chip: its condition when it was judged last}
        self.conditions: dict[int, Condition] = {}
        #: {chip: since when all that was told of it is good; inf: it is not}
        self.well_since_s: dict[int, float] = {}
        #: {chip: since when looks show the fault that may stay, and until when}
        self.shown_s: dict[int, tuple[float, float]] = {}
        #: chips whose level may be raised since it has stayed
        self.may_be_raised: set[int] = set()
        self.config = CONFIGURED["usual"]
        #: when something was done to workers last
        self.disturbed_s = self.loop.time()
        self.node.start()
        self.node.on_judged = self.judged
        self.edit("usual")

    @property
    def known_node(self) -> DrivenNode:
        assert self.node is not None
        return self.node

    # what the driver does

    @rule(
        method=methods,
        chip=anywhere,
        error=st.sampled_from(ERRORS),
        pause_s=pauses,
    )
    def fails(self, method: str, chip: int, error: int, pause_s: float) -> None:
        self.disturbed_s = self.loop.time()
        self.library.fail(error, method, chip=chip)
        self.pass_s(pause_s)

    @rule(
        method=methods,
        chip=anywhere,
        hang=st.builds(
            Hang, for_s=st.sampled_from([3.0, 7.0, inf]), is_once=st.booleans()
        ),
        pause_s=pauses,
    )
    def hangs(self, method: str, chip: int, hang: Hang, pause_s: float) -> None:
        self.disturbed_s = self.loop.time()
        self.library.hangs[method, chip] = hang
        self.pass_s(pause_s)

    @rule(method=st.sampled_from(METHODS))
    def recovers(self, method: str) -> None:
        self.disturbed_s = self.loop.time()
        for table in (self.library.errors, self.library.hangs):
            for key in [key for key in table if key[0] == method]:
                del table[key]

    @rule()
    def all_recovers(self) -> None:
        self.disturbed_s = self.loop.time()
        self.library.errors.clear()
        self.library.hangs.clear()
        self.library.left_off.clear()
        self.library.load_s, self.library.load_error = 0.0, 0

    @rule(load_s=st.sampled_from([3.0, 40.0, 55.0, 70.0]))
    def loads_late(self, load_s: float) -> None:
        self.disturbed_s = self.loop.time()
        self.library.load_s = load_s

    @rule(error=st.sampled_from([0, -8005, -8017]))
    def loads_with_error(self, error: int) -> None:
        self.disturbed_s = self.loop.time()
        self.library.load_error = error

    @rule(is_in_kernel=st.booleans())
    def hangs_are_in_kernel(self, *, is_in_kernel: bool) -> None:
        self.disturbed_s = self.loop.time()
        self.library.is_in_kernel = is_in_kernel
        if not is_in_kernel:
            self._end_killed()

    def _end_killed(self) -> None:
        for process in self.known_node.workers.processes:
            if process.is_killed:
                process.end_process()

    @rule(is_so=st.booleans())
    def lists_cards_at_load_only(self, *, is_so: bool) -> None:
        self.library.lists_at_load = is_so

    @rule(chip=chips, is_once=st.booleans(), pause_s=pauses)
    def list_lacks_card(self, chip: int, pause_s: float, *, is_once: bool) -> None:
        self.library.left_off[chip] = is_once
        self.pass_s(pause_s)

    @rule(chip=chips, pause_s=pauses)
    def card_is_pulled(self, chip: int, pause_s: float) -> None:
        if (chip, 0) in self.library.chips and len(self.library.chips) > 1:
            del self.library.chips[chip, 0]
            self.known_node.end_processes(lambda each: each.chip == chip)
        self.pass_s(pause_s)

    @rule(chip=chips, pause_s=pauses)
    def card_is_back(self, chip: int, pause_s: float) -> None:
        self.library.put([*FIRST, *SECOND][chip])
        self.pass_s(pause_s)

    @rule(
        chip=chips,
        codes=st.sampled_from([(), (BAD,), (MILD,), (NETWORK,), (LASTING,)]),
        pause_s=pauses,
    )
    def fault(self, chip: int, codes: tuple[int, ...], pause_s: float = 0.0) -> None:
        before = self.library.codes_of.get(chip, ())
        self.library.codes_of[chip] = codes
        for code in {*before} ^ {*codes}:
            self.known_node.workers.last.send_event(
                chip, code, at_ms=self.known_node.wall_ms(), is_over=code in before
            )
        self.pass_s(pause_s)

    # what others do

    @rule(pause_s=pauses)
    def worker_is_killed(self, pause_s: float) -> None:
        node = self.known_node
        call = node.workers.last.call
        if call is not None and call.card >= 0:
            self.library.truth.rude_s[call.card] = self.loop.time()
            self.library.truth.hung[call] += 1
        self.disturbed_s = self.loop.time()
        node.workers.last.end_process()
        self.pass_s(pause_s)

    @rule(name=st.sampled_from(sorted(CONFIGURED)), pause_s=pauses)
    def edit(self, name: str, pause_s: float = 0.0) -> None:
        """Somebody edits the fault configuration."""
        self.config = CONFIGURED[name]
        for chip in ALL:  # what the new one says may be seen from now on only
            self.well_since_s[chip] = inf
        self.known_node.apply_fault_config(fault_config.parse(self.config.data).config)
        self.pass_s(pause_s)

    @rule(
        is_second=st.booleans(),
        count=st.integers(1, 2),
        is_after=st.booleans(),
        is_in_pod=st.booleans(),
        pause_s=pauses,
    )
    def pod_comes(
        self,
        count: int,
        pause_s: float,
        *,
        is_second: bool,
        is_after: bool,
        is_in_pod: bool,
    ) -> None:
        """A pod gets free chips, or those of one that has just ended."""
        node = self.known_node
        line = node.lines[is_second]
        free = self._successor_of(line) if is_after else ()
        taken = {chip for pod in node.pods.values() for chip in pod.chips}
        out = {c for c in line.chips if self.conditions.get(c) not in IN_SERVICE}
        free = free or tuple(c for c in line.chips if c not in taken | out)[:count]
        if free and node.add_pod(line, free):
            pod = [*node.pods.values()][-1]
            for chip in pod.chips:
                node.add_process(pod, chip, is_in_pod=is_in_pod)
        self.pass_s(pause_s)

    def _successor_of(self, line: Line) -> tuple[int, ...]:
        node = self.known_node
        taken = {chip for pod in node.pods.values() for chip in pod.chips}
        ended = [pod for pod in node.ended if pod.line is line]
        free = ended[-1].chips if ended else ()
        return free if taken.isdisjoint(free) else ()

    @precondition(lambda self: self.node and self.node.pods)
    @rule(data=st.data(), leaves=st.booleans(), pause_s=pauses)
    def pod_ends(self, data: st.DataObject, pause_s: float, *, leaves: bool) -> None:
        node = self.known_node
        name = data.draw(st.sampled_from(sorted(node.pods)))
        uid = node.pods[name].made.uid
        node.end_pod(name)
        if not leaves:
            node.end_processes(lambda each: each.uid == uid)
        self.pass_s(pause_s)

    @rule()
    def left_processes_end(self) -> None:
        node = self.known_node
        living = {pod.made.uid for pod in node.pods.values()}
        node.end_processes(lambda each: each.uid not in living)

    # what matters most often

    @rule(is_second=st.booleans(), is_in_pod=st.booleans(), pause_s=pauses)
    def pod_leaves_process(
        self, pause_s: float, *, is_second: bool, is_in_pod: bool
    ) -> None:
        """A pod runs for a while, and its process for longer."""
        node, before = self.known_node, {*self.known_node.pods}
        self.pod_comes(1, 6.0, is_second=is_second, is_after=False, is_in_pod=is_in_pod)
        for name in node.pods.keys() - before:
            node.end_pod(name)
        self.pass_s(pause_s)

    @rule(chip=chips, method=st.sampled_from(["codes", "check_ready"]))
    def look_hangs_for_ever(self, chip: int, method: str) -> None:
        self.hangs(method, chip, Hang(is_once=False), 70.0)

    @rule(chip=chips, load_s=st.sampled_from([0.0, 40.0]), pause_s=pauses)
    def worker_is_lost_after_fault(
        self, chip: int, load_s: float, pause_s: float
    ) -> None:
        """A chip is about to recover when nothing can be read any more."""
        self.fault(chip, (BAD,), 2.0)
        self.fault(chip, (), 2.0)
        self.loads_late(load_s)
        self.worker_is_killed(pause_s)

    # time

    @rule(seconds=st.sampled_from([1.0, 20.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.pass_s(seconds)

    def pass_s(self, seconds: float) -> None:
        until_s = self.loop.time() + seconds
        while self.loop.time() < until_s:
            self.known_node.run_for(POLL_S)
            self.check_times()
            assert not self.known_node.breaches, self.known_node.breaches

    # the laws

    def judged(self) -> None:
        """Compare each condition with what was told of its chip."""
        node = self.known_node
        self._note_shown()
        after = node.conditions()
        for chip, condition in after.items():
            before = self.conditions.get(chip, condition)
            if before in IN_SERVICE and condition not in IN_SERVICE:
                self._check_leaving(chip)
        self.conditions = after
        for chip, code in node.raised():
            if chip not in self.may_be_raised:
                node.breaches.append(f"chip {chip}: {code} raised: {self.shown_s}")

    def _check_leaving(self, chip: int) -> None:
        """A chip has left service: what was told of it has to be the reason."""
        truth, now_s = self.library.truth, self.loop.time()
        answer = truth.answers.get(chip, Answer(word=Word.RUDE))
        told_s, rude_s = truth.told_s.get(chip, -inf), truth.rude_s.get(chip, -inf)
        bad_s = [truth.codes_s.get((chip, code), -inf) for code in self.config.bad]
        bad_s += [truth.gone_s.get(chip, -inf)]
        if now_s - max(bad_s) <= SLACK_S or self._is_bad(chip, answer):
            return
        is_unread = answer.word is not Word.TOLD or rude_s > told_s
        is_late = now_s - told_s >= UNREAD_S - UNKNOWN_S
        is_its_own = rude_s >= told_s or self._was_hung(chip)
        if not (is_unread and is_late and is_its_own):
            self.known_node.breaches.append(
                f"at {now_s:g} s: chip {chip} left service: {answer}, told at "
                f"{told_s:g} s, rude at {rude_s:g} s"
            )

    def _was_hung(self, chip: int) -> bool:
        """Whether a look at the chip may be left out."""
        return any(
            call.card == chip and count >= 2
            for call, count in self.library.truth.hung.items()
        )

    def _is_bad(self, chip: int, answer: Answer) -> bool:
        return (
            answer.word is Word.GONE
            or bool(self.config.bad.intersection(answer.codes))
            or chip in self.may_be_raised
        )

    def _note_shown(self) -> None:
        """Note for how long looks have shown the fault that may stay."""
        truth = self.library.truth
        is_well = self.known_node.workers.last.is_well
        now_s = self.loop.time() if is_well else truth.looked_s
        for chip, answer in truth.answers.items():
            if answer.word is not Word.TOLD:
                continue
            if LASTING in answer.codes:
                began_s, _ = self.shown_s.get(chip, (now_s, now_s))
                self.shown_s[chip] = began_s, now_s
                if now_s - began_s >= STAYS_S - UNKNOWN_S:
                    self.may_be_raised.add(chip)
            elif chip in self.shown_s:
                _, end_s = self.shown_s[chip]
                if now_s - end_s > GONE_S + SLACK_S:
                    del self.shown_s[chip]
                    self.may_be_raised.discard(chip)

    def check_times(self) -> None:
        """Check since when chips are out of service, and what workers are lost for."""
        node, now_s = self.known_node, self.loop.time()
        self._note_shown()
        is_well = node.workers.last.is_well
        for chip in ALL:
            answer = self.library.truth.answers.get(chip)
            is_good = answer is not None and answer.word is Word.TOLD
            if answer is None or not is_good or self._is_bad(chip, answer):
                self.well_since_s[chip] = inf
            elif self.well_since_s.get(chip, inf) == inf or not is_well:
                self.well_since_s[chip] = now_s
            limit_s = UNREAD_S + RECOVER_S + SLACK_S
            if now_s - self.well_since_s[chip] > limit_s:
                assert self.conditions[chip] in IN_SERVICE, chip
        for process in node.workers.processes:
            cut_s = process.cut_load_s
            assert cut_s is None or cut_s >= LOAD_S - POLL_S, "loading was cut off"

        looked_s = max(self.disturbed_s, self.library.truth.looked_s)
        if now_s - looked_s > BLIND_S and self._hangs_once_at_most():
            raise AssertionError(f"no look for {BLIND_S:g} s: {self.library.hangs}")

    def _hangs_once_at_most(self) -> bool:
        """Whether at most one call of one chip hangs, and loading takes no time."""
        library = self.library
        return (
            len(library.hangs) <= 1
            and all(chip != ANY for _, chip in library.hangs)
            and library.load_s <= 3.0
            and not (library.load_error or library.is_in_kernel)
        )

    def come_to_rest(self) -> None:
        """Let all be well: then every chip comes back."""
        node = self.known_node
        self.all_recovers()
        self.hangs_are_in_kernel(is_in_kernel=False)
        self.lists_cards_at_load_only(is_so=False)
        self.library.put(*FIRST, *SECOND)
        for chip in ALL:
            self.fault(chip, ())
        for name in [*node.pods]:
            node.end_pod(name)
        node.end_processes(lambda _each: True)
        most = max(self.library.truth.hung.values(), default=0)
        limit_s = self.loop.time() + 200 + 60 * 2.0 ** min(most, 6)
        while self.loop.time() < limit_s:
            self.pass_s(1.0)
            if not self._what_is_missing():
                return
        raise AssertionError(self._what_is_missing())

    def _what_is_missing(self) -> str:
        node = self.known_node
        out = [c for c in ALL if self.conditions.get(c) is not Condition.HEALTHY]
        held = {line.product.key: line.held for line in node.lines if line.held}
        return f"out of service: {out}, held: {held}" if out or held else ""

    def teardown(self) -> None:
        try:
            if self.node is not None:
                self.come_to_rest()
        finally:
            if self.node is not None:
                self.node.stop()
            self.loop.close()
            self.folder.cleanup()


def test_a_long_look_shows_nothing_before_its_end() -> None:
    """A chip was back in service by what was read before a look of 12 s."""
    node = TwoLines()
    node.begin(has_events=False, load_s=0.0)
    for chip in range(4):
        hang = Hang(for_s=3.0, is_once=False)
        node.hangs("check_ready", chip=chip, hang=hang, pause_s=0.0)
    node.fault(4, (BAD,), 30.0)
    node.fault(4, (), 60.0)
    node.teardown()


#: Examples in `make test` and in `make long`: the same each time.
FEW, MANY = 10, 100


@examples(
    FEW,
    pytest.param(MANY, marks=pytest.mark.long),
    variable="TWO_LINES_EXAMPLES",
)
@pytest.mark.timeout(3600)  # 3,000 of them
def test_chips_of_two_lines_are_as_their_driver_tells(examples: int) -> None:
    run_state_machine_as_test(
        TwoLines,
        settings=settings(
            max_examples=examples,
            # what chance finds is for whoever asks for another number
            derandomize=examples in {FEW, MANY},
            phases=set(Phase) - ({Phase.shrink} if examples == MANY else set()),
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
            deadline=None,
        ),
    )
