"""What all tests share."""

import asyncio

import pytest

# Before Python 3.12 the first look at "the current loop" makes one that nobody
# closes; its warning would then fail whichever test runs when it is collected.
asyncio.set_event_loop(None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Golden files: texts that other programs read, kept as they were reviewed."""
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files anew"
    )
