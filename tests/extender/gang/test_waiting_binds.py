"""Bind calls that wait at the gate."""

import asyncio

from extender.gang.events import Caller
from extender.gang.waiting_binds import WaitingBinds
from extender.refusals import GONE, STOPPING


def caller(name: str) -> Caller:
    return Caller(uid=name, node="n1", is_there=lambda: True)


async def test_of_many_the_first_go_on_before_the_last_are_told() -> None:
    calls = WaitingBinds()
    numbers = [calls.add(caller(f"uid-{i}")) for i in range(500)]
    waiting = [asyncio.create_task(calls.wait(number)) for number in numbers]
    telling = asyncio.create_task(calls.release(numbers))
    await waiting[0]
    assert not waiting[-1].done()
    assert await asyncio.gather(*waiting) == [None] * 500
    await telling


async def test_who_has_an_answer_gets_no_other() -> None:
    calls = WaitingBinds()
    first, second = calls.add(caller("a")), calls.add(caller("b"))
    calls.answer(first, GONE)
    await calls.release([first, second])
    calls.refuse_all(STOPPING)
    assert (await calls.wait(first), await calls.wait(second)) == (GONE, None)


async def test_nobody_is_asked_or_told_who_has_gone() -> None:
    calls = WaitingBinds()
    number = calls.add(who := caller("a"))
    assert (calls.caller(number), len(calls)) == (who, 1)
    calls.forget(number)
    await calls.release([number])
    assert (calls.caller(number), len(calls)) == (None, 0)
