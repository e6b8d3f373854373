from dataclasses import asdict, replace

import pytest

from scheduler_core.wire.pods import NpuPod, PodMeta, RawContainer, RawEnv, npu_pod
from scheduler_core.wire.shapes import ContainerKind, ContainerNeed, Shape
from tests.support.rows import rows

RESOURCE = "huawei.com/Ascend910"
INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP
META = PodMeta(
    uid="uid-1",
    namespace="default",
    name="train-0",
    node="node-1",
    phase="Pending",
    owner="ReplicaSet/default/train",
    annotations={},
    created="2026-01-01T00:00:00Z",
)
FROM_ANNOTATION = RawEnv(
    "ASCEND_VISIBLE_DEVICES", field_path="metadata.annotations['huawei.com/Ascend910']"
)


def container(name: str, count: str = "1", *env: RawEnv) -> RawContainer:
    return RawContainer(name=name, limits={RESOURCE: count, "cpu": "1"}, env=env)


def starter(name: str, count: str, restart_policy: str = "") -> RawContainer:
    return RawContainer(
        name=name,
        is_init=True,
        restart_policy=restart_policy,
        limits={RESOURCE: count},
    )


def pod_of(*containers: RawContainer, meta: PodMeta = META) -> NpuPod:
    pod = npu_pod(meta, containers, RESOURCE)
    assert pod is not None
    return pod


def test_a_pod_with_containers_of_every_kind() -> None:
    pod = pod_of(
        container("app", "2"),
        RawContainer(name="no-npu"),
        starter("fetch", "4"),
        starter("logs", "1", restart_policy="Always"),
        container("second", "1"),
    )

    needs = ((INIT, 4), (SIDECAR, 1), (APP, 2), (APP, 1))
    assert pod == NpuPod(
        **asdict(META),
        needs=(
            ContainerNeed(name="fetch", kind=INIT, count=4),
            ContainerNeed(name="logs", kind=SIDECAR, count=1),
            ContainerNeed(name="app", kind=APP, count=2),
            ContainerNeed(name="second", kind=APP, count=1),
        ),
        shape=Shape(resource=RESOURCE, needs=needs),
    )
    assert pod.total == 4


@rows(
    "containers",
    {
        "no containers": (),
        "no limits": (RawContainer(name="a"),),
        "zero": (container("a", "0"),),
        "another resource": (
            RawContainer(name="a", limits={"huawei.com/Ascend310": "1"}),
        ),
    },
)
def test_a_pod_that_asks_for_no_npu_is_not_ours(
    containers: tuple[RawContainer, ...],
) -> None:
    assert npu_pod(META, containers, RESOURCE) is None


def test_containers_that_dynamic_allocation_serves_are_not_ours() -> None:
    meta = replace(META, dra=("a",))

    assert npu_pod(meta, (container("a", "2"),), RESOURCE) is None
    assert pod_of(container("a", "2"), container("b", "1"), meta=meta).needs == (
        ContainerNeed(name="b", kind=APP, count=1),
    )


@pytest.mark.parametrize(
    ("phase", "terminal"),
    [
        ("Pending", False),
        ("Running", False),
        ("Unknown", False),
        ("Failed", True),
        ("Succeeded", True),
    ],
)
def test_a_pod_has_ended_when_it_failed_or_succeeded(
    phase: str, *, terminal: bool
) -> None:
    pod = pod_of(container("a"), meta=replace(META, phase=phase))

    assert pod.terminal == terminal


def test_only_the_annotations_that_we_read_are_kept() -> None:
    ours = {
        RESOURCE: "Ascend910-0",
        "predicate-time": "1",
        "huawei.com/AscendReal": "Ascend910-0",
        "huawei.com/kltDev": "Ascend910-0",
        "ascend.kubectl.kubernetes.io/ascend-910-configuration": "{}",
        "huawei.com/schedule_policy": "chip4-node8",
        "sp-block": "16",
    }

    pod = pod_of(container("a"), meta=replace(META, annotations={**ours, "x": "y"}))

    assert pod.annotations == ours
    assert pod.shape.choice == (
        ("huawei.com/schedule_policy", "chip4-node8"),
        ("sp-block", "16"),
    )


def test_what_was_written_on_a_pod_does_not_change_its_shape() -> None:
    written = replace(
        META, annotations={RESOURCE: "Ascend910-0", "predicate-time": "1"}
    )

    assert pod_of(container("a"), meta=written).shape == pod_of(container("a")).shape


def test_a_pod_may_read_its_annotation_by_itself() -> None:
    pod = pod_of(container("a", "2", FROM_ANNOTATION))

    assert (pod.shape.reads_annotation, pod.problem) == (True, "")


def test_a_variable_of_another_name_may_show_the_annotation() -> None:
    shown = RawEnv("CHIPS", field_path=FROM_ANNOTATION.field_path)

    pod = pod_of(container("a", "2", shown))

    assert (pod.shape.reads_annotation, pod.problem) == (False, "")


def test_a_container_without_npus_may_read_the_annotation_too() -> None:
    watcher = RawContainer(name="watcher", env=(FROM_ANNOTATION,))

    assert pod_of(container("a", "2"), watcher).shape.reads_annotation


IS_SET = "container a sets ASCEND_VISIBLE_DEVICES: leave it out"
MAY_BE_VOID = "container b sets ASCEND_VISIBLE_DEVICES: leave it out or set it to void"


def without_chips(value: str | None) -> RawContainer:
    return RawContainer(name="b", env=(RawEnv("ASCEND_VISIBLE_DEVICES", value),))


NOT_WHOLE = "huawei.com/Ascend910 must be a whole number of chips"


@rows(
    ("containers", "problem"),
    {
        "literal": (
            (container("a", "1", RawEnv("ASCEND_VISIBLE_DEVICES", "0,1")),),
            IS_SET,
        ),
        "empty": (
            (container("a", "1", RawEnv("ASCEND_VISIBLE_DEVICES")),),
            IS_SET,
        ),
        "void": (
            (container("a", "1", RawEnv("ASCEND_VISIBLE_DEVICES", "void")),),
            IS_SET,
        ),
        "from a ConfigMap": (
            (container("a", "1", RawEnv("ASCEND_VISIBLE_DEVICES", None)),),
            IS_SET,
        ),
        "from an annotation that comes later": (
            (
                container(
                    "a",
                    "1",
                    RawEnv(
                        "ASCEND_VISIBLE_DEVICES",
                        field_path="metadata.annotations['huawei.com/AscendReal']",
                    ),
                ),
            ),
            IS_SET,
        ),
        "D5: in a container without NPUs": (
            (container("a"), without_chips("all")),
            MAY_BE_VOID,
        ),
        "D5: in one without NPUs, from a ConfigMap": (
            (container("a"), without_chips(None)),
            MAY_BE_VOID,
        ),
        "D5: in one without NPUs, not quite void": (
            (container("a"), without_chips("void ")),
            MAY_BE_VOID,
        ),
        "D5: in an init container without NPUs": (
            (container("a"), without_chips("0")._replace(is_init=True)),
            MAY_BE_VOID,
        ),
        "D5: empty in one without NPUs": ((container("a"), without_chips("")), ""),
        "D5: void in one without NPUs": ((container("a"), without_chips("void")), ""),
        "D5: void in an init container without NPUs": (
            (container("a"), without_chips("void")._replace(is_init=True)),
            "",
        ),
        "D5: one of several values of a container without NPUs": (
            (
                container("a"),
                RawContainer(
                    name="b",
                    env=(
                        RawEnv("ASCEND_VISIBLE_DEVICES", "void"),
                        RawEnv("ASCEND_VISIBLE_DEVICES", "0"),
                    ),
                ),
            ),
            MAY_BE_VOID,
        ),
        "part of a chip": ((container("a", "1500m"),), NOT_WHOLE),
        "negative": ((container("a", "-1"),), NOT_WHOLE),
        "more digits than Python reads": (
            (container("a", "1"), container("b", "9" * 5000)),
            NOT_WHOLE,
        ),
        "init containers only": (
            (starter("a", "1"),),
            "NPUs in init containers only: which pod has them can never be confirmed",
        ),
        "a reader beside another": (
            (container("a", "1", FROM_ANNOTATION), container("b", "1")),
            (
                "a container that reads its chips from the annotation gets all 2 of "
                "the pod, but another number is asked for"
            ),
        ),
        "other variables": ((container("a", "1", RawEnv("PATH", "/bin")),), ""),
    },
)
def test_a_pod_that_can_never_be_served_says_why(
    containers: tuple[RawContainer, ...], problem: str
) -> None:
    assert pod_of(*containers).problem == problem


@pytest.mark.parametrize("first", ["huawei.com/Ascend910", "huawei.com/Ascend310P"])
def test_a_pod_is_given_chips_of_one_product_line(first: str) -> None:
    both = [
        RawContainer(name="train", limits={"huawei.com/Ascend910": "1"}),
        RawContainer(name="infer", limits={"huawei.com/Ascend310P": "1"}),
    ]

    pod = npu_pod(META, both, first)
    spared = npu_pod(replace(META, dra=("infer",)), both, "huawei.com/Ascend910")

    assert pod is not None
    assert pod.problem == (
        "a pod gets NPUs of one kind: ask for huawei.com/Ascend910 or "
        "huawei.com/Ascend310P"
    )
    assert spared is not None
    assert spared.problem == ""
