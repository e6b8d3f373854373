"""The agent under kubelets before 1.34: it finds out alike who has what."""

from typing import Any

import pytest

from sandbox.kubelet.profiles import PROFILES
from tests.agent.site import Site
from tests.support.objects import PODS, pod

#: All other tests have the newest. Those between differ from it in nothing that the
#: agent asks of them.
OLDEST = PROFILES[0]


class OnceSite(Site):
    """Its pods run once."""

    @staticmethod
    def pod(name: str, count: int) -> dict[str, Any]:
        return pod(name, count, restartPolicy="Never")


pytestmark = pytest.mark.site(of=OnceSite, profile=OLDEST)


async def test_pods_are_confirmed_though_others_were_rejected_or_have_ended(
    site: Site,
) -> None:
    assert not site.profile.has_get
    await site.api.create(PODS, _around_the_scheduler(site))
    for name, count in (("a", 2), ("b", 2), ("c", 1)):
        await site.serve(name, count)

    site.kubelet.finish("b", "main")
    await site.until_phase("b", "Succeeded")
    await site.settle()
    await site.serve("d")

    assert {name: len(chips) for name, chips in site.mounted().items()} == {
        "a": 2,
        "c": 1,
        "d": 2,
    }


def _around_the_scheduler(site: Site) -> dict[str, Any]:
    return pod("rejected", 1, node=site.kubelet.node_name)
