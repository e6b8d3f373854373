"""An agent that starts with a journal it cannot use; plugin and kubelet are real."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from agent.journal import file
from agent.settings import boot_id
from tests.agent.site import NODE, SETTLED_S, Site
from tests.support.until import until


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def from_the_future(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"journal 2 ", b"journal 3 ", 1))


def of_another_node(path: Path) -> None:
    entries = file.decode(path.read_bytes(), boot_id=boot_id(), node=NODE)
    path.write_bytes(file.encode(entries, boot_id=boot_id(), node="another"))


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


WAYS: tuple[Callable[[Path], None], ...] = (
    *(torn, flipped, from_the_future, of_another_node, a_directory, a_link),
)


async def said(site: Site) -> list[str]:
    """Why journals could not be used, as the events say it, one for each time."""
    return sorted(
        event["message"].partition(", kept as")[0].partition("holds: ")[2]
        for event in await site.events("NpuJournalUnusable")
        for _ in range(event.get("count", 1))
    )


async def has_said(site: Site, count: int) -> bool:
    return len(await said(site)) >= count


async def test_holds_are_found_again_whatever_became_of_the_journal(
    site: Site,
) -> None:
    assert await site.bind("stays", 2)
    await site.until_mounted("stays")
    await site.settle()
    before = site.mounted()

    for number, spoil in enumerate(WAYS, start=1):
        await site.stop_agent()
        await site.until_allocatable(0)
        spoil(site.root / "holds")
        site.start_agent()
        await site.until_allocatable()
        await until(partial(has_said, site, number), within_s=SETTLED_S)
        await site.settle()

    assert site.mounted() == before
    assert await said(site) == sorted(
        [
            *(text for text in await said(site) if text.startswith(("torn", "dam"))),
            "other version: expected version 2, found version 3",
            f"other node: expected {NODE!r}, found 'another'",
            "Is a directory",
            "Too many levels of symbolic links",
        ]
    )
    assert {path.name for path in site.root.glob("holds.bad-*")} == {
        f"holds.bad-{number}" for number in range(1, len(WAYS) + 1)
    }
