"""What the agent shows the API server it shows nobody else."""

import logging
from pathlib import Path

import pytest

from kube.credentials import from_url
from kube.errors import CredentialsError
from tests.agent.site import SETTLED_S, Site
from tests.support.until import until

TOKEN = "user:ascend-agent"  # noqa: S105  # what the site gives its agent


pytestmark = pytest.mark.site("--log-level", "debug")


async def test_its_token_is_in_no_log_whatever_the_api_server_does(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert (site.root / "token").read_text() == TOKEN
    assert await site.bind("train", 2)
    await site.until_mounted("train")
    await site.settle()
    before = len(caplog.records)

    await site.server.stop()

    await until(lambda: _complaints(caplog.records[before:]), within_s=SETTLED_S)
    # All that a record has, whichever of it a formatter shows.
    told = "\n".join(
        f"{record.getMessage()} {vars(record)}" for record in caplog.records
    )
    assert TOKEN not in told


def _complaints(records: list[logging.LogRecord]) -> list[str]:
    return [each.getMessage() for each in records if each.levelno >= logging.WARNING]


def test_a_token_that_cannot_be_used_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"verysecret\x00")

    with pytest.raises(CredentialsError) as refused:
        from_url("https://api.test", tmp_path)

    assert "11 bytes" in str(refused.value)
    assert "verysecret" not in str(refused.value)
