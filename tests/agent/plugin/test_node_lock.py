import asyncio
from pathlib import Path

from agent.plugin.node_lock import lock_kubelet_dir


async def test_the_second_agent_of_a_directory_says_so_and_waits(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    order: list[str] = []

    async def second() -> None:
        async with lock_kubelet_dir(tmp_path, told.append):
            order.append("second")

    async with lock_kubelet_dir(tmp_path, told.append):
        waiting = asyncio.create_task(second())
        while not told:
            await asyncio.sleep(0.01)
        order.append("first")
    await waiting

    assert told == [f"another agent serves the kubelet at {tmp_path}; waiting"]
    assert order == ["first", "second"]
