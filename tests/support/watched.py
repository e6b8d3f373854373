"""What the extender's watches show: events of nodes, reports, pods and switches."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from extender.cache import events
from extender.cache.requests import Resources
from extender.gang.membership import Member, Membership, SizeSource
from kube.objects import Container, Meta, Pod, PodSpec
from kube.objects import Resources as Limits
from scheduler_core.products.lookup import Traits
from scheduler_core.products.table import ATLAS_800_TRAINING, Product, by_key
from scheduler_core.wire import annotations, deviceinfo, inventory
from scheduler_core.wire.addresses import Addresses
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo, Fault
from scheduler_core.wire.pods import NpuPod, PodMeta, RawContainer, RawEnv, npu_pod
from tests.joined import joined
from tests.support.clock import NOW_S

RESOURCE = "huawei.com/Ascend910"
ALL = range(8)
ALL_FREE = tuple(ALL)
A3 = by_key("atlas-a3-16-superpod")
CARDS = by_key("atlas-310p")
CARD = CARDS.resource
#: What a pod asks for besides chips, where a test does not care.
LITTLE = Resources(100, 1 << 20)
LARGE = Traits(labels={"tor-affinity": "large-model-schema"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a node says of its chips of one product: ids."""

    product: Product = ATLAS_800_TRAINING
    there: tuple[int, ...] = ALL_FREE
    held: tuple[int, ...] = ()
    releasing: tuple[int, ...] = ()
    unhealthy: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    recovering: tuple[int, ...] = ()
    network_unhealthy: tuple[int, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def offer(self) -> events.Offer:
        return events.Offer(
            resource=self.product.resource,
            product=self.product,
            allocatable=len(self.there),
        )


#: Eight chips for training, and two cards for inference whose ids come after them.
TRAINING = Line()
INFERENCE = Line(product=CARDS, there=(8, 9))
BOTH = (TRAINING, INFERENCE)


def node(  # the parts of a node
    name: str,
    *lines: Line,
    there: Iterable[int] = ALL,
    allocatable: int = 8,
    address: str = "",
    addresses: Addresses | None = None,
) -> events.NodeUpdated:
    """A node with chips of these lines; of none: `there` of eight for training."""
    offers = tuple(line.offer for line in lines)
    listed = [
        inventory.render(line.there, line.product, addresses)
        for line in lines or (Line(there=tuple(there)),)
    ]
    return events.NodeUpdated(
        name=name,
        offers=offers
        or (
            events.Offer(
                resource=ATLAS_800_TRAINING.resource,
                product=ATLAS_800_TRAINING,
                allocatable=allocatable,
            ),
        ),
        inventory=joined(listed),
        internal_ips=(address,) if address else (),
    )


def texts(
    *lines: Line, update_time: float = NOW_S, superpod: int = -2
) -> dict[str, str]:
    """The data of the ConfigMap in which a node's agent reports these lines."""
    each = [
        deviceinfo.render(
            DeviceInfo(
                available=line.there,
                unhealthy=line.unhealthy,
                recovering=line.recovering,
                network_unhealthy=line.network_unhealthy,
                faults=line.faults,
                update_time=int(update_time),
                super_pod_id=superpod,
            ),
            Affinity(
                held=line.held, releasing=line.releasing, lost=line.lost, sequence=1
            ),
            line.product,
        )
        for line in lines
    ]
    keys = (deviceinfo.DEVICE_INFO_KEY, deviceinfo.AFFINITY_KEY)
    return {key: joined([one[key] for one in each]) for key in keys}


def report(
    name: str,
    *lines: Line,
    update_time: float = NOW_S,
    superpod: int = -2,
    **parts_of_line: Iterable[int | Fault],
) -> events.ReportUpdated:
    """What an agent says of these lines; of none: of chips for training."""
    parts: dict[str, Any] = {key: tuple(part) for key, part in parts_of_line.items()}
    said = texts(
        *(lines or (replace(TRAINING, **parts),)),
        update_time=update_time,
        superpod=superpod,
    )
    return events.ReportUpdated(
        node=name,
        device_info=said[deviceinfo.DEVICE_INFO_KEY],
        affinity=said[deviceinfo.AFFINITY_KEY],
    )


def leaves(*servers: tuple[str, ...]) -> events.SwitchesUpdated:
    """The ConfigMap of leaves with these addresses."""
    listed = [
        {
            "tor_id": number,
            "tor_ip": f"1.0.0.{number}",
            "server": [
                {"server_ip": ip, "npu_count": 8, "slice_id": at}
                for at, ip in enumerate(ips)
            ],
        }
        for number, ips in enumerate(servers)
    ]
    info = {"version": "1.0", "tor_count": 2, "server_list": listed}
    return events.SwitchesUpdated(tor_info=json.dumps(info))


def pod(  # noqa: PLR0913  # the parts of a pod
    name: str,
    count: int = 1,
    *,
    of: Product = ATLAS_800_TRAINING,
    uid: str = "",
    namespace: str = "default",
    node: str = "",
    phase: str = "Pending",
    owner: str = "",
    deleting: bool = False,
    reads_annotation: bool = False,
    containers: tuple[RawContainer, ...] = (),
    annotations: Mapping[str, str] | None = None,
) -> NpuPod:
    """A pod that asks for chips of a product."""
    env: tuple[RawEnv, ...] = ()
    if reads_annotation:
        path = f"metadata.annotations['{of.resource}']"
        env = (RawEnv(name="ASCEND_VISIBLE_DEVICES", field_path=path),)
    one = RawContainer(name="c", limits={of.resource: str(count)}, env=env)
    made = npu_pod(
        PodMeta(
            uid=uid or f"uid-{name}",
            namespace=namespace,
            name=name,
            node=node,
            phase=phase,
            owner=owner,
            deleting=deleting,
            annotations=annotations or {},
        ),
        containers or (one,),
        of.resource,
    )
    assert made is not None
    return made


def labelled_pod(label: str | None, count: int = 8, name: str = "p") -> Pod:
    """A pod of no job with this label `tor-affinity`, as the watch shows it."""
    labels = None if label is None else {"tor-affinity": label}
    meta = Meta(name=name, namespace="default", uid=f"uid-{name}", labels=labels)
    one = Container(name="c", resources=Limits(limits={RESOURCE: str(count)}))
    return Pod(metadata=meta, spec=PodSpec(containers=[one]))


def pod_update(
    name: str,
    count: int = 1,
    *,
    priority: int = 0,
    rejected: bool = False,
    **parts: Any,  # of `pod`
) -> events.PodUpdated:
    """The event of a pod that is a job by itself."""
    made = pod(name, count, **parts)
    return events.PodUpdated(pod=made, priority=priority, rejected=rejected)


def rejection(name: str) -> tuple[events.PodUpdated, events.PodUpdated]:
    """A pod of job `j` on n1, before and after the kubelet rejects it."""
    seen = pod_update(name, owner="Job/default/j", node="n1")
    failed = replace(seen.pod, phase="Failed")
    return seen, events.PodUpdated(pod=failed, rejected=True)


def gone(*names: str) -> list[events.PodDeleted]:
    """The events of pods that are no longer."""
    return [events.PodDeleted(uid=f"uid-{name}") for name in names]


def claim(
    ids: Iterable[int], predicate_time: int = 1, of: Product = ATLAS_800_TRAINING
) -> dict[str, str]:
    """The annotations that bind writes."""
    return {
        of.resource: annotations.render_chips(ids, of),
        annotations.PREDICATE_TIME: str(predicate_time),
    }


def served(ids: Iterable[int]) -> dict[str, str]:
    """The annotations of a pod that the agent has confirmed."""
    ids = tuple(ids)
    real = annotations.render_chips(ids, ATLAS_800_TRAINING, lexicographic=True)
    return claim(ids, annotations.SERVED) | {annotations.ASCEND_REAL: real}


def tenant(name: str, where: str, ids: Iterable[int]) -> events.PodUpdated:
    """A running pod that was served long ago."""
    ids = tuple(ids)
    return running(name, served(ids), where, len(ids))


def running(
    name: str, texts: Mapping[str, str], where: str = "n1", count: int = 1
) -> events.PodUpdated:
    """A running pod with these annotations."""
    return pod_update(name, count=count, node=where, phase="Running", annotations=texts)


def asking(
    name: str,
    of: Line,
    count: int = 1,
    *,
    node: str = "",
    ids: Iterable[int] = (),
    time: int = annotations.SERVED,
) -> NpuPod:
    """A pod that asks for chips of a line; with `ids` it has them."""
    ids = tuple(ids)
    return pod(
        name,
        count=len(ids) or count,
        of=of.product,
        node=node,
        phase="Running" if node else "Pending",
        annotations=claim(ids, time, of.product) if ids else {},
    )


def living(
    name: str, of: Line, ids: Iterable[int], where: str = "n1"
) -> events.PodUpdated:
    """A pod that runs and has these chips."""
    return events.PodUpdated(pod=asking(name, of, node=where, ids=ids))


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
    is_gated: bool = False,
) -> events.PodUpdated:
    """A pod of a job that says itself how many pods it has."""
    found = pod(
        name,
        count=count,
        node=node,
        phase=phase,
        deleting=deleting,
        annotations=served(range(count)) if node else {},
    )
    membership = Membership(job=f"Job of pods/default/{job}", size=size)
    return events.PodUpdated(
        pod=found,
        ask=ask,
        member=Member(
            name=name,
            membership=membership,
            traits=traits,
            priority=priority,
            is_gated=is_gated,
        ),
    )


#: Object that says how many pods the job of `task` has.
JOB_PATH = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/j"


def task(
    number: int, *, role: str = "w", name: str = "", **parts: Any
) -> events.PodUpdated:
    """A pod of a job whose size its object says; named by its role and number.

    Args:
        parts: As for `member`.
    """
    made = member(name or f"{role}{number}", **parts)
    assert made.member is not None
    membership = Membership(
        job="Volcano Job/default/j",
        size_source=SizeSource(path=JOB_PATH, kind="Volcano Job"),
        order=(9, role, number, 0),
    )
    return replace(made, member=replace(made.member, membership=membership))


def two() -> tuple[events.PodUpdated, events.PodUpdated]:
    """Both pods of a job."""
    return member("a"), member("b")


def low(
    name: str, where: str, ids: Iterable[int], *, priority: int = 0, job: str = ""
) -> events.PodUpdated:
    """A pod that runs, of a lower priority; perhaps one of a job of two."""
    ids = tuple(ids)
    seen = member(
        name, job=job, count=len(ids), node=where, phase="Running", priority=priority
    )
    texts = dict(seen.pod.annotations) | claim(ids, annotations.SERVED)
    texts[annotations.ASCEND_REAL] = ""
    found = replace(seen, pod=replace(seen.pod, annotations=texts), priority=priority)
    return found if job else replace(found, member=None)


HIGH = 100


def high(count: int, name: str = "high", priority: int = HIGH) -> events.PodUpdated:
    """A pod that wants room, of a higher priority."""
    return pod_update(name, count, priority=priority)
