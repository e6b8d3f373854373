"""What all tests share."""

import asyncio

import pytest
from hypothesis import HealthCheck, settings

# Before Python 3.12 the first look at "the current loop" makes one that nobody
# closes; its warning would then fail whichever test runs when it is collected.
asyncio.set_event_loop(None)

# How long an example takes is the machine's business; benchmarks/ measures.
settings.register_profile(
    "no-clock", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("no-clock")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Golden files: texts that other programs read, kept as they were reviewed."""
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files anew"
    )
