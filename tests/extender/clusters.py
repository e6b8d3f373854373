"""Small clusters for the extender's tests, built from the same words as the watches."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from extender.cache import events
from extender.cache.cache import Cache, step
from extender.scheduling import reserve
from extender.scheduling.reserve import Choice
from scheduler_core.node import chips
from scheduler_core.node.reasons import Reason
from scheduler_core.products.table import ATLAS_800_TRAINING
from scheduler_core.wire import annotations, deviceinfo, inventory
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo
from scheduler_core.wire.pods import NpuPod, PodMeta, RawContainer, RawEnv, npu_pod

RESOURCE = "huawei.com/Ascend910"
ALL = range(8)
NOW_S = 1_800_000_000.0
NOW_NS = 1_800_000_000_000_000_000


def node(
    name: str,
    *,
    there: Iterable[int] = ALL,
    allocatable: int = 8,
) -> events.NodeUpdated:
    return events.NodeUpdated(
        name=name,
        product=ATLAS_800_TRAINING,
        inventory=inventory.render(there, ATLAS_800_TRAINING),
        allocatable=allocatable,
    )


def report(  # noqa: PLR0913  # the parts of a report
    name: str,
    *,
    unhealthy: Iterable[int] = (),
    available: Iterable[int] = ALL,
    held: Iterable[int] = (),
    releasing: Iterable[int] = (),
    lost: Iterable[int] = (),
    update_time: float = NOW_S,
    recovering: Iterable[int] = (),
) -> events.ReportUpdated:
    texts = deviceinfo.render(
        DeviceInfo(
            available=tuple(available),
            unhealthy=tuple(unhealthy),
            recovering=tuple(recovering),
            update_time=int(update_time),
        ),
        Affinity(
            held=tuple(held), releasing=tuple(releasing), lost=tuple(lost), sequence=1
        ),
        ATLAS_800_TRAINING,
    )
    return events.ReportUpdated(
        node=name,
        device_info=texts[deviceinfo.DEVICE_INFO_KEY],
        affinity=texts[deviceinfo.AFFINITY_KEY],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A pod in the making."""

    name: str
    count: int = 1
    uid: str = ""
    namespace: str = "default"
    node: str = ""
    phase: str = "Pending"
    owner: str = ""
    deleting: bool = False
    reads_annotation: bool = False
    containers: tuple[RawContainer, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


def pod(spec: Spec) -> NpuPod:
    env: tuple[RawEnv, ...] = ()
    if spec.reads_annotation:
        path = f"metadata.annotations['{RESOURCE}']"
        env = (RawEnv(name="ASCEND_VISIBLE_DEVICES", field_path=path),)
    one = RawContainer(name="c", limits={RESOURCE: str(spec.count)}, env=env)
    made = npu_pod(
        PodMeta(
            uid=spec.uid or f"uid-{spec.name}",
            namespace=spec.namespace,
            name=spec.name,
            node=spec.node,
            phase=spec.phase,
            owner=spec.owner,
            deleting=spec.deleting,
            annotations=spec.annotations,
        ),
        spec.containers or (one,),
        RESOURCE,
    )
    assert made is not None
    return made


def claim(ids: Iterable[int], predicate_time: int = 1) -> dict[str, str]:
    return {
        RESOURCE: annotations.render_chips(ids, ATLAS_800_TRAINING),
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
    return events.PodUpdated(
        pod=pod(
            Spec(
                name=name,
                count=len(ids),
                node=where,
                phase="Running",
                annotations=served(ids),
            )
        )
    )


def cluster(*extra: events.Change, nodes: Iterable[str] = ("n1",)) -> Cache:
    cache = Cache()
    for name in nodes:
        apply(cache, node(name), report(name))
    apply(cache, *extra)
    return cache


def apply(cache: Cache, *found: events.Change, now_s: float = NOW_S) -> None:
    for change in found:
        step(cache, change, now_s)


def free(cache: Cache, name: str, resource: str = RESOURCE) -> tuple[int, ...]:
    return chips.ids_of(cache.cluster.nodes(resource)[name].free)


def barred(cache: Cache, name: str = "n1", resource: str = RESOURCE) -> Reason | None:
    """Why the index takes no pod for a node; None: it does."""
    return cache.cluster.nodes(resource)[name].barred


def running(name: str, ids: dict[str, str], where: str = "n1") -> events.PodUpdated:
    """A running pod with these annotations."""
    return events.PodUpdated(
        pod=pod(Spec(name=name, node=where, phase="Running", annotations=ids))
    )


def bind(cache: Cache, wanted: NpuPod, name: str) -> Choice:
    """Choose and promise, as bind does."""
    made = reserve.choose_chips(cache, wanted, name, now_s=NOW_S, now_ns=NOW_NS)
    assert isinstance(made, Choice), made
    step(cache, made.reservation, NOW_S)
    return made
