"""agent/README.md names every setting and every metric, and no other."""

import dataclasses
import re
from pathlib import Path

from agent import mindcluster_flags
from agent.observe.metrics import Metrics
from agent.settings import Settings
from service.metrics import open_registry
from tests.support import metric_pages

PAGE = (Path(__file__).parents[2] / "agent" / "README.md").read_text()


def test_every_setting_is_on_the_page() -> None:
    flags = {
        f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(Settings)
    }

    told = set(re.findall(r"`(--[a-z-]+)[^`]*`", PAGE))

    assert told - {"--config", "--json"} == flags


def test_every_metric_is_on_the_page() -> None:
    registry = open_registry("ascend_agent", mode="scheduled")
    Metrics(registry)

    told = metric_pages.documented(PAGE, "ascend_agent")

    assert told.keys() == metric_pages.served(registry, "ascend_agent")


def test_every_flag_of_others_is_on_the_page() -> None:
    assert set(re.findall(r"^\| `-([A-Za-z]\w[\w-]*)` \|", PAGE, re.MULTILINE)) == set(
        mindcluster_flags._FLAGS
    )
