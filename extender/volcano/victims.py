"""Which pods of a node would have to go so that another gets chips there that suit?

Volcano counts: it evicts until enough chips are free, whichever they are. Here it is
told only of those whose chips make what the pod needs, the least important first.
"""

from collections import defaultdict
from collections.abc import Sequence

from extender.cache.cache import Cache
from extender.preemption import victims
from extender.volcano.protocol import Evictee
from scheduler_core.wire.pods import NpuPod


def choose(cache: Cache, evictor: NpuPod, evictees: Sequence[Evictee]) -> list[Evictee]:
    """The fewest of the evictees, of each node, that make room for a pod.

    Where the pod has its chips already, other things are wanting: then those who have
    none of ours.

    Args:
        cache: What is known.
        evictor: Asks for NPUs.
        evictees: Pods that run, of any nodes.
    """
    by_node: defaultdict[str, list[Evictee]] = defaultdict(list)
    for each in evictees:
        by_node[each.task.node].append(each)
    found: list[Evictee] = []
    for node, some in by_node.items():
        found += _of_node(cache, evictor, node, some)
    return found


def _of_node(
    cache: Cache, evictor: NpuPod, node: str, evictees: Sequence[Evictee]
) -> list[Evictee]:
    host, record = cache.hosts.get(node), cache.line(node, evictor.shape.resource)
    tenants = record.tenants if record is not None else {}
    having = [e for e in evictees if e.task.uid in tenants]

    def fits(some: Sequence[Evictee]) -> bool:
        return victims.do_help(cache, evictor, node, [each.task.uid for each in some])

    if fits(()):
        lines = host.lines if host is not None else ()
        ours = {uid for line in lines for uid in line.tenants}
        return [each for each in evictees if each.task.uid not in ours]
    some = sorted(having, key=lambda each: (each.task.priority, each.task.uid))
    if not fits(some):
        return []
    for each in reversed(some.copy()):  # the most important are spared first
        fewer = [one for one in some if one is not each]
        if fits(fewer):
            some = fewer
    return some
