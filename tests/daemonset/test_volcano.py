"""The configuration that Volcano gets, beside what is served."""

import re

import pytest
import yaml

from extender.cache import decode
from tests.daemonset.rendered import DAEMONSET
from tests.extender.volcanos import volcano
from tests.support.caches import cluster

SHIPPED = DAEMONSET / "overlays" / "volcano" / "volcano-scheduler.conf"


@pytest.mark.seed("004-15")
async def test_volcano_asks_for_all_that_is_served_after_its_own_predicates() -> None:
    async with volcano(cluster()) as world:
        served = {each.path for each in world.volcano.routes()}
    configuration = yaml.safe_load(SHIPPED.read_text())
    first, *others = configuration["tiers"]
    names = [plugin["name"] for plugin in first["plugins"]]
    said = first["plugins"][-1]["arguments"]
    verbs = {v for key, v in said.items() if re.fullmatch(r"extender\.\w+Verb", key)}

    assert {f"/volcano/{verb}" for verb in verbs} == served
    assert said["extender.urlPrefix"].endswith(":8888/volcano")
    assert said["extender.ignorable"] is False
    assert set(said["extender.managedResources"]) == set(decode.RESOURCES)
    # A tier that has decided leaves no word to the next; what fits otherwise is ours.
    assert names[-2:] == ["predicates", "extender"]
    later = [each["name"] for tier in others for each in tier["plugins"]]
    assert not {"extender", "predicates"} & set(later)
