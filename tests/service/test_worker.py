import gc
import threading

import pytest

from service.worker import Worker
from tests.support.programs import run_python

HANGS = """
import asyncio, threading
from service.worker import Worker

async def main():
    Worker("hangs").call(threading.Event().wait)
    await asyncio.sleep(0.05)

asyncio.run(main())
"""


async def test_a_call_gives_its_result_or_its_error() -> None:
    worker = Worker("w")

    assert await worker.call(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await worker.call(divmod, 7, 0)


async def test_calls_are_carried_out_one_after_the_other_in_their_order() -> None:
    worker = Worker("w")
    may_go = threading.Event()
    seen: list[int] = []

    first = worker.call(may_go.wait)
    others = [worker.call(seen.append, number) for number in range(9)]
    may_go.set()

    assert await first
    await others[-1]
    assert seen == list(range(9))


async def test_an_outcome_that_nobody_waits_for_any_more_is_nobodys() -> None:
    worker = Worker("w")
    may_go = threading.Event()

    left = worker.call(may_go.wait)
    left.cancel()
    may_go.set()

    assert await worker.call(int) == 0


def test_a_call_that_hangs_does_not_keep_the_process_from_ending() -> None:
    ended = run_python("-c", HANGS, timeout=10, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")


async def test_no_thread_is_left_of_a_worker_that_is_no_longer_in_use() -> None:
    worker = Worker("short-lived")
    await worker.call(int)
    (thread,) = (each for each in threading.enumerate() if each.name == "short-lived")

    del worker
    gc.collect()

    thread.join(timeout=10)
    assert not thread.is_alive()
