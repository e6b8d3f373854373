"""The way of faults through time: when a job is judged, told, and moved.

Faults are seen, node by node. A fault that moves a pod settles first: the pod counts as
a fault pod only after so long. Then its job is judged, and judged again when something
has changed, with pauses. Pods are told what is new only.

    a pod of the job             event                  result
    ---------------------------  ---------------------  --------------------------------
    -                            Seen with a fault      settles, or is due at once
    settles                      Ticked, in time        due: the job is judged
    settles or due               Seen without a fault   forgotten: the fault or the pod
                                                        is over; if others of the job
                                                        are due, the job is judged
    due                          Seen with another      the job is judged, at once if
                                 fault                  other chips are broken
    due                          Changed                the job is judged again, in the
                                                        next tick after the pause
    due                          Judged                 told, if there is news; where
                                                        pods are evicted and have
                                                        places, its move begins, or
                                                        waits: see below

A second fault of a job joins the first: the assessment is of all its fault pods that
are due. A job without fault pods is forgotten.

The move of a job goes through the stages of `stages`, its pods through the steps of
`departures`. A second fault is judged beside what goes already, and joins the move. A
job whose pods all have places of a move is not judged again.

    what keeps a move from beginning         also keeps pods of a move from being asked
    ---------------------------------------  ------------------------------------------
    people hold the job, or all              yes; what has gone is brought back
    faults on very many nodes (the brake)    yes
    three moves for one chip, or one just    no
    now

Pods of a move that has not begun stay if the faults are over. Those of an earlier
leader's move are not asked before the first tick, so that holds, faults and the brake
are known by then.

`step` is pure. `rescheduler` carries the effects out.
"""

from dataclasses import replace

from extender.rescheduling import departures, fault_jobs, stages
from extender.rescheduling.assessment import describe_fault
from extender.rescheduling.moves import (
    Answered,
    Bound,
    DeleteRecord,
    EndsRead,
    Held,
    JobGone,
    Limits,
    Move,
    MoveEffect,
    MoveEvent,
    PlaceLost,
    PlacesEnded,
    PlacesKept,
    PodEnded,
    PodLeaving,
    Recovered,
    ReleasePlaces,
    Stage,
    TellJob,
    WriteRecord,
    Written,
)
from extender.rescheduling.state import (
    After,
    Changed,
    Effect,
    Event,
    FaultJob,
    Judged,
    Seen,
    State,
    Ticked,
    with_job,
    with_move,
)

_UNKNOWN = "what evictions do to its job is not known"
#: Events of a pod that goes, and of one move.
_OfPod = Answered | PodLeaving | PodEnded | PlacesEnded
_OfMove = EndsRead | PlacesKept | Written | JobGone | _OfPod
#: Pods are told, and not evicted.
_REPORTING = Limits()
#: A move after a step, and the effects of that.
_Moved = tuple[Move, tuple[MoveEffect, ...]]


def step(
    state: State,
    event: Event,
    now_s: float,
    limits: Limits = _REPORTING,
) -> After:
    """Return the state after an event, and the effects to carry out, in order.

    Args:
        now_s: Seconds since the epoch, by a clock that is not set meanwhile.

    Cost:
        A step for each job with fault pods, and for each pod of a move that an event is
        about. Nothing for most events, while there are none.
    """
    match event:
        case Seen():
            return _see(state, event, now_s, limits)
        case Changed():
            return fault_jobs.change(state, event, now_s), ()
        case Judged():
            return _take(state, event, now_s, limits)
        case Ticked():
            return _tick(state, event, now_s, limits)
        case _:
            return _step_moves(state, event, now_s, limits)


def _step_moves(state: State, event: MoveEvent, now_s: float, limits: Limits) -> After:
    match event:
        case Held():
            return _ask(replace(state, held=event), now_s, limits)
        case Recovered():
            return _recover(state, event, now_s, limits)
        case _:
            move = state.moves.get(event.job)
            if move is None:
                return state, ()
            return _step_move(state, move, event, now_s, limits)


def _see(state: State, event: Seen, now_s: float, limits: Limits) -> After:
    """Look at a place; let pods stay whose faults are over before they were asked."""
    state, touched = fault_jobs.see(state, event, now_s)
    effects: tuple[Effect, ...] = ()
    for key in sorted(touched & state.moves.keys()):
        move, job = state.moves[key], state.jobs.get(key)
        broken = job.pods.keys() if job is not None else set[str]()
        over = {uid for uid in move.causes if uid not in broken}
        if not broken and not move.has_begun:
            over = {place.uid for place in move.unasked}
        elif move.goes_whole:
            continue
        state, more = _advance(
            state, key, departures.withdraw(move, over, now_s), now_s, limits
        )
        effects += more
    return state, (*effects, *fault_jobs.judge(state, touched, now_s, limits))


def _take(state: State, event: Judged, now_s: float, limits: Limits) -> After:
    """Take an assessment: tell it, or begin what it says."""
    key, job = event.job, state.jobs.get(event.job)
    if job is None:
        return state, ()
    if not limits.is_evicting:
        return fault_jobs.tell(state, event, now_s, limits)
    faults = fault_jobs.faults_of(job, event.faulty)
    if fault_jobs.is_wanting(event):
        state = fault_jobs.want(state, event, now_s, limits)
    waits = ""
    if event.assessment.word in fault_jobs.MOVING:
        waits = fault_jobs.why_waits(state, key, faults, now_s, limits)
        if not waits:
            return _begin(state, job, event, now_s, limits)
    move = state.moves.get(key)
    if move is not None:
        state = _put_back(state, move)
    return fault_jobs.tell(state, event, now_s, limits, waits)


def _begin(
    state: State, job: FaultJob, event: Judged, now_s: float, limits: Limits
) -> After:
    """Begin a move, or add to it: first with what its evictions do."""
    key, assessment = event.job, event.assessment
    move = state.moves.get(key) or Move(job=key, progress_s=now_s)
    unread = assessment.unread
    if unread and unread <= move.ends.keys():
        return fault_jobs.put_off(_put_back(state, move), key, _UNKNOWN, now_s, limits)
    if unread:
        asked = replace(job, judged=event.faulty, is_changed=False, waits="")
        is_late = 0.0 < job.refused_s <= now_s - limits.grace_s
        moved, effects = stages.read_ends(
            replace(move, overdue_s=job.refused_s if is_late else 0.0),
            unread,
            now_s,
            asks_budgets=assessment.asks_budgets and not is_late,
        )
        return with_move(with_job(state, key, asked), key, moved), effects
    state, _ = fault_jobs.tell(state, event, now_s, limits)
    causes = {
        uid: describe_fault(job.pods[uid].fault)
        for uid in event.faulty
        if uid in job.pods
    }
    faults = fault_jobs.faults_of(job, event.faulty)
    after = stages.keep(move, assessment, causes, faults, now_s)
    return _advance(state, key, after, now_s, limits)


def _step_move(
    state: State, move: Move, event: _OfMove, now_s: float, limits: Limits
) -> After:
    match event:
        case EndsRead():
            return _take_ends(state, move, event, now_s, limits)
        case PlacesKept():
            return _take_kept(state, move, event, now_s, limits)
        case Written():
            return _take_written(state, move, event, now_s, limits)
        case JobGone():
            deleted = (DeleteRecord(job=move.job),) if move.is_recorded else ()
            released = ReleasePlaces(job=move.job)
            return with_move(state, move.job, None), (released, *deleted)
        case _:
            return _step_pod(state, move, event, now_s, limits)


def _step_pod(
    state: State, move: Move, event: _OfPod, now_s: float, limits: Limits
) -> After:
    """Step one pod that goes, or its place."""
    match event:
        case Answered():
            after = departures.answer(move, event, now_s, limits)
        case PodLeaving():
            after = departures.leave(move, event.uid, now_s, limits)
        case PodEnded():
            after = departures.go(move, event.uid, now_s)
        case _:
            after = departures.end_places(move, event, now_s)
            heirs = [e.successor for e in event.ends if isinstance(e, Bound)]
            if move.owner and heirs and after[0] is not move:
                return _succeed(state, after, heirs[0], now_s, limits)
            state = _judge_lost(state, move, after[0], event, now_s)
    return _advance(state, event.job, after, now_s, limits)


def _judge_lost(
    state: State, move: Move, after: Move, event: PlacesEnded, now_s: float
) -> State:
    """Have a job judged whose pods have lost their places before they went."""
    lost = (end.uid for end in event.ends if isinstance(end, PlaceLost))
    if all(map(move.is_gone, lost)):
        return state
    for departure in after.departures.values():
        if departure.is_homeless:
            state = fault_jobs.join(state, move.job, departure.place, now_s)
    return fault_jobs.judge_anew(state, move.job)


def _take_ends(
    state: State, move: Move, event: EndsRead, now_s: float, limits: Limits
) -> After:
    """Have a job judged with what evictions do to it; evict what is late."""
    key = event.job
    if move.stage is not Stage.ENDS or event.uids != move.reading:
        return state, ()
    is_read = not event.problem and event.ends.keys() >= event.uids
    why = "" if is_read else event.problem or _UNKNOWN
    if move.is_late:
        after = _take_late(stages.step_back(move), event, why, now_s)
        return _advance(state, key, after, now_s, limits)
    if why:
        if event.is_refused:
            state = fault_jobs.refuse(state, key, now_s)
        return fault_jobs.put_off(_put_back(state, move), key, why, now_s, limits)
    moved = replace(move, ends=event.ends, groups=event.groups)
    state = fault_jobs.judge_anew(with_move(state, key, moved), key)
    judged = fault_jobs.judge(state, (key,), now_s, limits)
    return (state, judged) if judged else (_put_back(state, move), ())


def _take_late(move: Move, event: EndsRead, why: str, now_s: float) -> _Moved:
    """Evict pods that their controller has not ended, if their job survives that."""
    reasons = (end.reason for end in event.ends.values() if not end.can_evict)
    why = why or min(reasons, default="")
    if not why:
        return departures.evict_late(move, event.uids, now_s), ()
    waits = replace(move, stage_s=now_s)  # it is read again
    return waits, (_tell_stopped(move, why),)


def _tell_stopped(move: Move, why: str) -> TellJob:
    text = f"pods of its move are not evicted now: {why}"
    return TellJob(job=move.job, reason=departures.WAITS, text=text)


def _take_kept(
    state: State, move: Move, event: PlacesKept, now_s: float, limits: Limits
) -> After:
    key = event.job
    if move.stage is not Stage.KEEPING:
        return state, ()
    if move.past is None:  # after a restart; its record is there
        moved = replace(move, stage=Stage.MOVING, stage_s=now_s)
        return _advance(state, key, (moved, ()), now_s, limits)
    if event.is_kept:
        after = stages.record_next(move, now_s), ()
        return _advance(state, key, after, now_s, limits)
    why = event.why or "its places were taken meanwhile"
    return fault_jobs.put_off(_put_back(state, move), key, why, now_s, limits)


def _take_written(
    state: State, move: Move, event: Written, now_s: float, limits: Limits
) -> After:
    key = event.job
    if not move.write or event.number != move.write:
        return state, ()
    answered = replace(move, write=0)
    if event.is_written:
        answered = replace(answered, failures=0)
        if move.stage is Stage.WRITING:
            answered = stages.set_off(answered, now_s)
        state, effects = _advance(state, key, (answered, ()), now_s, limits)
        return state, (*effects, *fault_jobs.judge(state, (key,), now_s, limits))
    failures = move.failures + 1
    if move.stage is Stage.WRITING and failures >= limits.most_writes:
        state, effects = _advance(state, key, stages.abandon(answered), now_s, limits)
        state, messages = fault_jobs.put_off(
            state, key, stages.UNWRITTEN, now_s, limits
        )
        return state, (*effects, *messages)
    pause_s = min(limits.first_pause_s * 2.0**failures, limits.longest_ask_s)
    later = replace(answered, failures=failures, write_again_s=now_s + pause_s)
    return with_move(state, key, later), ()


def _succeed(
    state: State, after: _Moved, successor: str, now_s: float, limits: Limits
) -> After:
    """Let what is remembered of a pod that is a job by itself be its successor's."""
    moved, effects = after
    state = with_move(state, moved.job, None)
    heir = replace(moved, job=successor, stage=Stage.MOVING)
    state, more = _advance(state, successor, (heir, ()), now_s, limits)
    return state, (*effects, *more, DeleteRecord(job=moved.job))


def _recover(state: State, event: Recovered, now_s: float, limits: Limits) -> After:
    key = event.record.job
    if key in state.moves:
        return state, ()
    if stages.is_over(event.record, now_s, limits):
        return state, (DeleteRecord(job=key),)
    after = stages.recover(event, now_s, limits)
    return _advance(state, key, after, now_s, limits)


def _put_back(state: State, move: Move) -> State:
    """Return the state with a move as it was before something was to be added."""
    back = stages.step_back(move)
    is_empty = not (back.is_open or back.history or back.is_recorded)
    return with_move(state, move.job, None if is_empty else back)


def _advance(
    state: State, key: str, after: _Moved, now_s: float, limits: Limits
) -> After:
    """Take a move over: write its record, end it, or ask its next pods to go."""
    move, effects = after
    before = state.moves.get(key)
    if move is before:
        return state, effects
    if before is not None and _lets_stay(before, move):
        move = replace(move, is_outdated=True)
    state = with_move(state, key, move)
    if move.stage is Stage.WRITING and not move.write and not move.write_again_s:
        state, written = _write(state, move, now_s)
        return state, (*effects, *written)
    if move.stage is Stage.MOVING and not move.departures:
        state, ended = _end(state, move, now_s, limits)
        return state, (*effects, *ended)
    rewritten: tuple[Effect, ...] = ()
    is_writing = move.write or move.write_again_s
    if move.stage is Stage.MOVING and move.is_outdated and not is_writing:
        state, rewritten = _write(state, move, now_s)
    state, asked = _ask(state, now_s, limits)
    return state, (*effects, *rewritten, *asked)


def _lets_stay(before: Move, after: Move) -> bool:
    """Whether a pod that was recorded, and was not asked, goes no more."""
    if len(after.departures) >= len(before.departures):
        return False
    going = after.departures.keys() | {place.uid for place in after.addition}
    return any(
        uid not in going and not departure.has_begun
        for uid, departure in before.departures.items()
    )


def _write(state: State, move: Move, now_s: float) -> After:
    number = state.writes + 1
    written = replace(
        move,
        write=number,
        write_again_s=0.0,
        stage_s=now_s,
        is_recorded=True,
        is_outdated=False,
    )
    state = replace(with_move(state, move.job, written), writes=number)
    return state, (WriteRecord(job=move.job, number=number, record=move.record),)


def _end(state: State, move: Move, now_s: float, limits: Limits) -> After:
    """End a move; its record keeps what is remembered of it, until that is old."""
    rests = replace(
        stages.step_back(move),
        causes={},
        is_whole=False,
        news="",
        failures=0,
        write=0,
        history=stages.recent(move.history, now_s, limits),
    )
    if rests.history:
        return _write(state, rests, now_s)
    deleted = (DeleteRecord(job=move.job),) if move.is_recorded else ()
    return with_move(state, move.job, None), deleted


def _ask(state: State, now_s: float, limits: Limits) -> After:
    """Ask as many pods to go as may be asked, of all moves that nothing stops."""
    effects: tuple[Effect, ...] = ()
    for key, move in state.moves.items():
        room = limits.most_asks - sum(len(m.asking) for m in state.moves.values())
        may_ask = bool(move.queue) and not (move.is_being_written or move.is_recalled)
        if may_ask and not fault_jobs.why_stopped(state, key, limits):
            moved, asked = departures.ask(move, now_s, room)
            state, effects = with_move(state, key, moved), (*effects, *asked)
    return state, effects


def _tick(state: State, event: Ticked, now_s: float, limits: Limits) -> After:
    effects: tuple[Effect, ...] = ()
    if event.npu_nodes != state.npu_nodes:
        state = replace(state, npu_nodes=event.npu_nodes)
    if limits.is_evicting:
        state = fault_jobs.forget_joined(state)
        state = fault_jobs.want_still(state, now_s, limits)
        for key in list(state.moves):
            state, more = _tick_move(state, key, now_s, limits)
            effects += more
        state, asked = _ask(state, now_s, limits)
        effects += asked
    judged = fault_jobs.judge(state, state.jobs, now_s, limits)[: limits.at_once]
    return state, (*effects, *judged)


def _tick_move(state: State, key: str, now_s: float, limits: Limits) -> After:
    """Let time pass for a move: answers are late, pauses over, or it is stuck."""
    move = state.moves[key]
    if move.is_recalled:  # all places with faults were looked at before
        move = replace(move, is_recalled=False)
        state = with_move(state, key, move)
    is_late = now_s >= move.stage_s + limits.answer_s
    match move.stage:
        case Stage.RESTING:
            return _tick_resting(state, move, now_s, limits)
        case Stage.ENDS if is_late:
            unread = EndsRead(job=key, uids=move.reading)
            return _take_ends(state, move, unread, now_s, limits)
        case Stage.WRITING | Stage.MOVING if move.write and is_late:
            unwritten = Written(job=key, number=move.write, is_written=False)
            return _take_written(state, move, unwritten, now_s, limits)
        case Stage.WRITING | Stage.MOVING if move.is_to_be_written(now_s):
            return _write(state, move, now_s)
    return _tick_departures(state, move, now_s, limits)


def _tick_resting(state: State, move: Move, now_s: float, limits: Limits) -> After:
    """Forget what is old, and try again to write what is remembered."""
    history = stages.recent(move.history, now_s, limits)
    if not history:
        deleted = (DeleteRecord(job=move.job),) if move.is_recorded else ()
        return with_move(state, move.job, None), deleted
    if move.is_to_be_written(now_s):
        return _write(state, move, now_s)
    return state, ()


def _tick_departures(state: State, move: Move, now_s: float, limits: Limits) -> After:
    """Give up a move that is stuck, or tell why it is stopped; else ask again."""
    key = move.job
    if not move.departures:
        return state, ()
    if departures.is_stuck(move, now_s, limits):
        state = fault_jobs.judge_anew(state, key)
        return _advance(state, key, departures.give_up(move), now_s, limits)
    stopped = fault_jobs.why_stopped(state, key, limits)
    effects: tuple[Effect, ...] = ()
    if stopped and stopped != move.news and move.has_waiting:
        effects = (_tell_stopped(move, stopped),)
        move = replace(move, news=stopped)
    elif not stopped:
        room = limits.most_asks - sum(len(m.asking) for m in state.moves.values())
        started = replace(move, news="") if move.news else move
        move, effects = _ask_late(started, now_s, limits, room)
    return (state if move is state.moves[key] else with_move(state, key, move)), effects


def _ask_late(move: Move, now_s: float, limits: Limits, room: int) -> _Moved:
    """Ask those again whose pause is over, and after those that stay without reason."""
    late = frozenset[str]()
    if move.stage is Stage.MOVING:
        late = departures.find_late(move, now_s, limits)
    if not late:
        return departures.ask_again(move, now_s, limits, room)
    moved, effects = stages.read_ends(move, late, now_s)
    return replace(moved, is_late=True), effects
