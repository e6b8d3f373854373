"""A model of API server and scheduler, as far as one node's ledger meets them.

Values only, no clock: what a real one does by itself here happens when a test
says so. Watch events wait in a queue until they are delivered.
"""

import zlib
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.claims.events import PodDeleted, PodUpdated
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import ATLAS_800_TRAINING
from scheduler_core.wire import annotations as keys
from scheduler_core.wire import shapes
from scheduler_core.wire.deviceinfo import Affinity
from scheduler_core.wire.pods import (
    NpuPod,
    PodMeta,
    RawContainer,
    RawEnv,
    npu_pod,
)
from scheduler_core.wire.shapes import ContainerKind

NODE = "node-1"
PRODUCT = ATLAS_800_TRAINING
ALL_CHIPS = 255
APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR

Needs = Sequence[tuple[ContainerKind, int]]


def shuffled(items: Iterable[str], seed: int) -> list[str]:
    """An order that looks like chance and is the same for the same seed."""
    return sorted(items, key=lambda each: zlib.crc32(f"{seed}/{each}".encode()))


def chips_text(mask: int) -> str:
    return keys.render_chips(chip_sets.ids_of(mask), PRODUCT)


def mask_in(text: str | None) -> int:
    """The chips of an annotation that the model itself or the agent has written."""
    return chip_sets.mask_of(keys.parse_chips(text, PRODUCT)) if text else 0


def annotated(pod: NpuPod) -> int:
    """The chips that a pod stands for: scheduler's annotation and AscendReal."""
    return mask_in(pod.annotations.get(PRODUCT.resource)) | mask_in(
        pod.annotations.get(keys.ASCEND_REAL)
    )


def new_pod(
    uid: str,
    needs: Needs,
    *,
    name: str = "",
    annotations: Mapping[str, str],
    reads_annotation: bool = False,
) -> NpuPod:
    """A bound pod as the API server shows it."""
    path = f"metadata.annotations['{PRODUCT.resource}']"
    env = (RawEnv("ASCEND_VISIBLE_DEVICES", field_path=path),)
    containers = [
        RawContainer(
            name=f"c{index}",
            is_init=kind is not APP,
            restart_policy="Always" if kind is SIDECAR else "",
            limits={PRODUCT.resource: str(count)},
            env=env if reads_annotation else (),
        )
        for index, (kind, count) in enumerate(needs)
    ]
    meta = PodMeta(
        uid=uid,
        namespace="default",
        name=name or uid,
        node=NODE,
        annotations=annotations,
    )
    pod = npu_pod(meta, containers, PRODUCT.resource)
    assert pod is not None
    return pod


def claim(mask: int, moment: int) -> dict[str, str]:
    """The two annotations that bind writes."""
    return {PRODUCT.resource: chips_text(mask), keys.PREDICATE_TIME: str(moment)}


@dataclass
class Cluster:
    """API server and scheduler of one node."""

    pods: dict[str, NpuPod] = field(default_factory=dict)  # by uid
    watch: deque[PodUpdated | PodDeleted] = field(default_factory=deque)
    is_up: bool = True
    affinity: Affinity = field(default_factory=lambda: Affinity(sequence=0))
    unhealthy: int = 0  # as the agent last published it
    allocatable: int = 8
    bound: dict[str, int] = field(default_factory=dict)  # {uid: what bind chose}
    moment: int = 0
    seen: Counter[str] = field(default_factory=Counter)

    def put(self, pod: NpuPod) -> None:
        self.pods[pod.uid] = pod
        self.watch.append(PodUpdated(pod))

    def remove(self, uid: str) -> None:
        del self.pods[uid]
        self.watch.append(PodDeleted(uid))

    def patch(self, uid: str, wanted: Mapping[str, str]) -> NpuPod | None:
        """Merge annotations into the pod of this uid; None if it is gone."""
        pod = self.pods.get(uid)
        if pod is None:
            return None
        pod = replace(pod, annotations={**pod.annotations, **wanted})
        self.put(pod)
        return pod

    def living(self) -> list[NpuPod]:
        return [pod for pod in self.pods.values() if not pod.terminal]

    def annotated(self) -> int:
        """All chips that annotations of living pods stand for."""
        return chip_sets.union(annotated(pod) for pod in self.living())

    def bind(
        self,
        needs: Needs,
        *,
        name: str,
        reads_annotation: bool,
        heeds_report: bool = True,
    ) -> str | None:
        """Create a pod and bind it, as the extender would; None when refused.

        Args:
            heeds_report: Whether the scheduler leaves chips alone that the agent
                reports as held or releasing. Others than the extender do not.
        """
        uid = f"u{self.moment + 1}"
        pod = new_pod(
            uid, needs, name=name, annotations={}, reads_annotation=reads_annotation
        )
        if self._refuses(pod):
            self.seen["bind refused"] += 1
            return None
        free = ALL_CHIPS & ~self.unhealthy & ~self.annotated()
        if heeds_report:
            free &= ~chip_sets.mask_of((*self.affinity.held, *self.affinity.releasing))
        chips = chip_sets.choose(PRODUCT, free, pod.total)
        if not chips:
            return None
        self.moment += 1
        self.bound[uid] = chips
        created = f"{self.moment:05}"
        written = claim(chips, self.moment)
        self.put(replace(pod, annotations=written, created=created))
        return uid

    def bind_directly(self, needs: Needs, *, name: str) -> bool:
        """Create a pod with a node name and without any claim, as people do."""
        if any(pod.name == name for pod in self.pods.values()):
            return False
        self.moment += 1
        pod = new_pod(f"u{self.moment}", needs, name=name, annotations={})
        self.put(replace(pod, created=f"{self.moment:05}"))
        return True

    def _refuses(self, pod: NpuPod) -> bool:
        asked = sum(each.total for each in self.living()) + pod.total
        return (
            asked > self.allocatable
            or bool(self.affinity.lost)
            or any(
                (p.namespace, p.name) == ("default", pod.name)
                for p in self.pods.values()
            )
            or any(
                shapes.conflict(pod.shape, each.shape)
                for each in self.living()
                if each.annotations.get(keys.PREDICATE_TIME) != str(keys.SERVED)
            )
        )
