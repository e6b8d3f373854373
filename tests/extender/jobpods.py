"""Pods of a job, as the watch shows them to the cache."""

from extender.cache import events
from extender.cache.requests import Resources
from extender.gang.membership import Member, Membership
from scheduler_core.products.lookup import Traits
from tests.extender.clusters import Spec, pod, served

#: What a pod asks for besides chips, where a test does not care.
LITTLE = Resources(100, 1 << 20)


def member(  # noqa: PLR0913  # the parts of a pod that planning looks at
    name: str,
    *,
    job: str = "j",
    size: int = 2,
    count: int = 8,
    ask: Resources = LITTLE,
    priority: int = 0,
    traits: Traits = Traits(),  # noqa: B008  # a frozen value
    node: str = "",
    phase: str = "Pending",
    deleting: bool = False,
) -> events.PodUpdated:
    """A pod of a job that says itself how many pods it has."""
    spec = Spec(
        name=name,
        count=count,
        node=node,
        phase=phase,
        deleting=deleting,
        annotations=served(range(count)) if node else {},
    )
    return events.PodUpdated(
        pod=pod(spec),
        ask=ask,
        member=Member(
            name=name,
            membership=Membership(job=f"Job of pods/default/{job}", size=size),
            traits=traits,
            priority=priority,
        ),
    )
