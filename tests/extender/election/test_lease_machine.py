"""Extenders that want one lease, whatever becomes of them and of their requests.

Requests are lost on their way, answers on theirs, and what was given up may still be
executed. Extenders die, come back under the same name or another, and give the lease
back. Never do two decide, and who begins finds no bind of another under way.
"""

import random  # noqa: TID251  # the example chooses its seed
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.election import lease
from extender.election.lease import (
    Effect,
    LeaseConfig,
    LeaseRead,
    LeaseWritten,
    State,
    Ticked,
    WriteRefused,
)
from kube.objects import Lease, LeaseSpec, Meta
from service import clock

BIND_S = 12.0
NAMES = ("a", "b")


class Fate(Enum):
    """What becomes of a request."""

    WELL = auto()
    #: executed, and answered when time has passed
    SLOW = auto()
    LOST = auto()
    ANSWER_LOST = auto()
    #: given up, and perhaps executed later
    LATE = auto()


@dataclass(slots=True)
class Contender:
    """One extender, and its request that is under way."""

    terms: LeaseConfig
    state: State = field(default_factory=State)
    effect: Effect | None = None
    sent_s: float = 0.0
    #: what the API server has answered, if it has
    answer: lease.Event | None = None
    #: when its binds were sent
    binds: list[float] = field(default_factory=list)
    is_cut_off: bool = False


class OneLease:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.now_s = 1_800_000_000.0
        self.lease: Lease | None = None
        self.versions = count(1)
        self.lives = count(1)
        self.contenders = {name: self.newcomer(name) for name in NAMES}
        #: when extenders that are no more have sent their binds
        self.orphans: list[float] = []
        #: writes that were given up and may still be executed
        self.ghosts: list[Callable[[], object]] = []
        self.decider = ""
        self.terms = 0

    def newcomer(self, name: str) -> Contender:
        me = f"{name}-{next(self.lives)}"
        return Contender(terms=LeaseConfig(identity=me, lease_s=15.0, bind_s=BIND_S))

    def take(self, one: Contender, event: lease.Event) -> None:
        one.effect, one.answer = None, None
        has_led = one.state.phase is lease.Phase.LEADING
        one.state, effects = lease.step(one.state, event, self.now_s, one.terms)
        leads = one.state.phase is lease.Phase.LEADING
        if leads and not has_led:
            self.begin(one)
        elif has_led and not leads:
            self.orphans += one.binds
            one.binds.clear()
        for effect in effects:
            one.effect, one.sent_s = effect, self.now_s

    def begin(self, one: Contender) -> None:
        others = [b for c in self.contenders.values() if c is not one for b in c.binds]
        assert all(sent + BIND_S <= self.now_s for sent in others + self.orphans)
        self.orphans.clear()
        self.decider = one.terms.identity
        self.terms += 1

    def execute(self, one: Contender, effect: Effect) -> lease.Event:
        """What the API server makes of a request."""
        if isinstance(effect, lease.ReadLease):
            return self.found()
        assert isinstance(effect, lease.WriteLease)
        mine = self.lease.metadata.resource_version if self.lease else ""
        wanted = effect.over.metadata.resource_version if effect.over else ""
        if mine != wanted:
            return WriteRefused()
        spec = lease.render_held(
            effect.over, one.terms, clock.rfc3339_micro(self.now_s)
        )
        return LeaseWritten(lease=self.put(spec), sent_s=one.sent_s)

    def found(self) -> LeaseRead:
        spec = self.lease.spec if self.lease is not None else LeaseSpec()
        began = clock.parse_time(spec.acquire_time or "")
        if began is None:
            return LeaseRead(lease=self.lease)
        return LeaseRead(lease=self.lease, age_s=self.now_s - began)

    def put(self, spec: LeaseSpec) -> Lease:
        version = str(next(self.versions))
        self.lease = Lease(metadata=Meta(resource_version=version), spec=spec)
        return self.lease

    def pass_time(self) -> None:
        """Each looks after the lease and binds if it may, now and at the end."""
        for one in self.chance.sample(sorted(self.contenders.values(), key=str), 2):
            if one.answer is not None:
                self.take(one, one.answer)
            elif one.effect is None:
                self.take(one, Ticked())
            usual = self.chance.random() < 0.8
            fate = Fate.WELL if usual else self.chance.choice([*Fate])
            self.meet(one, Fate.LOST if one.is_cut_off else fate)
            self.bind(one)
        self.never_do_two_decide()
        for _ in range(self.chance.choice((1, 1, 2, 5))):
            self.now_s += self.chance.choice((0.5, 2.0, 3.0))
            for one in self.contenders.values():
                self.bind(one)
            self.never_do_two_decide()

    def meet(self, one: Contender, fate: Fate) -> None:
        """Let this become of its request, and of those that follow from it."""
        while one.effect is not None and fate is Fate.WELL:
            self.take(one, one.answer or self.execute(one, one.effect))
        if one.effect is None or one.answer is not None:
            return
        match fate:
            case Fate.SLOW:
                one.answer = self.execute(one, one.effect)
                return
            case Fate.ANSWER_LOST:
                self.execute(one, one.effect)
            case Fate.LATE:
                effect, then = one.effect, replace(one)
                self.ghosts.append(lambda: self.execute(then, effect))
            case _:
                pass
        one.effect = None

    def bind(self, one: Contender) -> None:
        if lease.why_not_leading(one.state, self.now_s) is None:
            assert self.decider == one.terms.identity  # nobody has begun since
            one.binds.append(self.now_s)

    def never_do_two_decide(self) -> None:
        assert len(self.deciding()) <= 1

    def deciding(self) -> list[Contender]:
        return [
            one
            for one in self.contenders.values()
            if lease.why_not_leading(one.state, self.now_s) is None
        ]

    def cut_off_or_mend(self, name: str) -> None:
        one = self.contenders[name]
        one.is_cut_off = not one.is_cut_off

    def execute_what_was_given_up(self, _name: str) -> None:
        if self.ghosts:
            self.ghosts.pop()()

    def die_and_be_replaced(self, name: str) -> None:
        self.orphans += self.contenders[name].binds
        self.contenders[name] = self.newcomer(name)

    def die_and_start_again(self, name: str) -> None:
        """The kernel closes its connections, and the API server drops its binds."""
        terms = self.contenders[name].terms
        self.contenders[name] = Contender(terms=terms)

    def give_the_lease_back(self, name: str) -> None:
        """It has waited for the end of its binds."""
        one = self.contenders[name]
        if one in self.deciding() and one.effect is None:
            assert one.state.lease is not None
            if self.lease == one.state.lease:
                self.put(lease.render_released(one.state.lease, ""))
                self.contenders[name] = self.newcomer(name)

    def somebody_puts_a_label_on_it(self, _name: str) -> None:
        if self.lease is not None:
            self.put(self.lease.spec)

    def something_else_happens(self) -> None:
        what = (
            self.cut_off_or_mend,
            self.cut_off_or_mend,
            self.execute_what_was_given_up,
            self.die_and_be_replaced,
            self.die_and_start_again,
            self.give_the_lease_back,
            self.somebody_puts_a_label_on_it,
        )
        self.chance.choice(what)(self.chance.choice(NAMES))

    def come_to_rest(self) -> None:
        """Left alone with a lease that answers, one of them comes to lead."""
        self.ghosts.clear()
        for _ in range(40):
            self.now_s += 2.0
            for one in self.contenders.values():
                one.effect, one.answer = None, None
                self.take(one, Ticked())
                self.meet(one, Fate.WELL)
        assert len(self.deciding()) == 1


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_never_do_two_decide_and_in_the_end_one_does(seed: int) -> None:
    world = OneLease(random.Random(seed))  # noqa: S311  # no secret
    for _ in range(200):
        world.pass_time()
        if world.chance.random() < 0.15:
            world.something_else_happens()
    world.come_to_rest()

    assert world.terms > 1
