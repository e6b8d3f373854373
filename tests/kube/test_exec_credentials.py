import asyncio
import threading
from collections.abc import Iterator

import pytest

from kube.errors import CredentialsError
from kube.exec_credentials import PluginTokens

WITHIN_S = 0.1


class Configuration:
    """The official client's, with a credential plugin that can hang."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = threading.Event()
        self.word = "one"

    def get_api_key_with_prefix(self, identifier: str, *, alias: str) -> str:
        self.asked.append(threading.current_thread().name)
        self.answers.wait()
        if not self.word:
            raise ValueError("the plugin ended with 1")
        return f"Bearer {self.word}"


@pytest.fixture
def configuration() -> Iterator[Configuration]:
    made = Configuration()
    yield made
    made.answers.set()


async def test_a_token_is_asked_for_once_a_minute(configuration: Configuration) -> None:
    now = 100.0
    configuration.answers.set()
    tokens = PluginTokens(configuration, clock=lambda: now)

    first = await tokens.token()
    configuration.word = "two"
    again = await tokens.token()
    now += 60.0
    later = await tokens.token()

    assert (first, again, later) == ("one", "one", "two")
    assert len(configuration.asked) == 2


async def test_a_plugin_that_hangs_is_asked_once_and_every_request_ends_in_time(
    configuration: Configuration,
) -> None:
    tokens = PluginTokens(configuration, timeout_s=WITHIN_S)
    before = threading.active_count()

    outcomes = await asyncio.gather(
        *(tokens.token() for _ in range(20)), return_exceptions=True
    )
    with pytest.raises(CredentialsError):
        await tokens.token()

    (text,) = {str(outcome) for outcome in outcomes}
    assert text == (
        "kubeconfig: no token: the credential plugin or identity provider has not "
        "answered within 0.1 s"
    )
    assert configuration.asked == ["kubeconfig"]
    assert threading.active_count() == before + 1


async def test_a_plugin_that_answers_late_is_not_asked_again(
    configuration: Configuration,
) -> None:
    tokens = PluginTokens(configuration, timeout_s=WITHIN_S)
    with pytest.raises(CredentialsError):
        await tokens.token()

    configuration.answers.set()

    assert await tokens.token() == "one"
    assert configuration.asked == ["kubeconfig"]


async def test_whoever_stops_waiting_takes_the_answer_from_nobody(
    configuration: Configuration,
) -> None:
    tokens = PluginTokens(configuration)
    patient, impatient = (asyncio.create_task(tokens.token()) for _ in range(2))
    await asyncio.sleep(0)

    impatient.cancel()
    configuration.answers.set()

    assert await patient == "one"


async def test_a_plugin_that_fails_is_asked_again_by_the_next_request(
    configuration: Configuration,
) -> None:
    tokens = PluginTokens(configuration)
    configuration.answers.set()
    configuration.word = ""
    with pytest.raises(
        CredentialsError, match=r"^kubeconfig: no token: the plugin ended with 1$"
    ):
        await tokens.token()

    configuration.word = "two"

    assert await tokens.token() == "two"
