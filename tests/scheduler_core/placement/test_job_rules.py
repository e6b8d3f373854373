import pytest

from scheduler_core.placement.job_rules import (
    Fault,
    Job,
    Pod,
    Problem,
    Profile,
    choose_rank_annotation,
    problems,
)
from scheduler_core.products import lookup, table
from scheduler_core.products.table import ATLAS_800_TRAINING as ATLAS
from tests.scheduler_core.jobs import job_of

A3 = table.by_key("atlas-a3-16")
SUPERPOD = table.by_key("atlas-a3-16-superpod")
DUO = table.by_key("atlas-300i-duo-distributed")
FLAT = table.by_key("flat-8")


def texts(given: Job, profile: Profile = Profile.SEED) -> list[str]:
    return [problem.text for problem in problems(given, profile)]


@pytest.mark.seed("004-06", "004-08")
@pytest.mark.parametrize(
    ("chips", "said"),
    [
        ((1,), []),
        ((4,), []),
        ((8,), []),
        ((8, 8, 8), []),
        ((1, 1), ["up to 8 chips must be one pod, found 2 pods"]),
        ((4, 4), ["up to 8 chips must be one pod, found 2 pods"]),
        ((8, 4), ["a job of more than 8 chips needs 8 for each pod: pod-1"]),
        (
            (4, 4, 4, 4, 4),
            [
                (
                    "a job of more than 8 chips needs 8 for each pod: "
                    "pod-0, pod-1, pod-2 and 2 more"
                )
            ],
        ),
        (
            (3,),
            ["a pod cannot have 3 chips of an Atlas 800 training server: pod-0"],
        ),
        (
            (16,),
            ["a pod cannot have 16 chips of an Atlas 800 training server: pod-0"],
        ),
    ],
)
def test_a_training_job_is_one_pod_or_whole_nodes(
    chips: tuple[int, ...], said: list[str]
) -> None:
    assert texts(job_of(ATLAS, *chips)) == said


@pytest.mark.parametrize("chips", [(1, 1), (4, 4), (8, 4), (2, 4, 8)])
def test_the_relaxed_profile_asks_for_legal_counts_only(chips: tuple[int, ...]) -> None:
    assert texts(job_of(ATLAS, *chips), Profile.PER_POD) == []
    assert texts(job_of(ATLAS, 3, *chips), Profile.PER_POD) == [
        "a pod cannot have 3 chips of an Atlas 800 training server: pod-0"
    ]


def test_the_rule_of_training_jobs_is_not_that_of_other_products() -> None:
    assert texts(job_of(FLAT, 1, 1)) == []
    assert texts(job_of(table.by_key("atlas-800-training-half"), 1, 2)) == []


@pytest.mark.seed("001-04")
@pytest.mark.parametrize(
    ("chips", "said"),
    [
        ((1,), []),
        ((2, 4), []),
        ((1, 1), ["an odd number of chips only as a job of one chip: pod-0, pod-1"]),
        ((2, 1), ["an odd number of chips only as a job of one chip: pod-1"]),
        ((2, 0), ["no chips are asked for, and nothing says that none are: pod-1"]),
    ],
)
def test_an_a3_gives_one_chip_only_to_a_job_of_one(
    chips: tuple[int, ...], said: list[str]
) -> None:
    assert texts(job_of(A3, *chips)) == said
    assert texts(job_of(A3, *chips), Profile.PER_POD) == said


@pytest.mark.seed("001-06")
def test_distributed_inference_is_one_pod() -> None:
    assert texts(job_of(DUO, 4)) == []
    assert texts(job_of(DUO, 4, 4)) == ["distributed inference is one pod, found 2"]


@pytest.mark.seed("001-13")
@pytest.mark.parametrize(
    ("chips", "block", "said"),
    [
        ((16,), None, []),
        ((2,), 2, []),
        ((16, 16), None, []),
        ((16, 16), 16, []),
        ((16, 16, 16, 16), 32, []),
        ((), None, ["no pod asks for chips"]),
        (
            (1,),
            2,
            [
                (
                    "sp-block 2: expected a multiple of the node's 16 chips, or all 1 "
                    "chips of the job"
                )
            ],
        ),
        ((16, 16), 24, ["sp-block 24: expected a multiple of the node's 16 chips"]),
        ((16,) * 3, 32, ["sp-block 32: does not divide the 48 chips of the job"]),
        (
            (16,) * 49,
            16 * 49,
            [
                (
                    "sp-block 784: expected at most 48 nodes, the size of a SuperPoD, "
                    "found 49"
                )
            ],
        ),
        ((16, 8), None, ["each pod of a SuperPoD's job needs 16 chips: pod-1"]),
    ],
)
def test_a_job_of_superpods_fills_them_with_whole_nodes(
    chips: tuple[int, ...], block: int | None, said: list[str]
) -> None:
    assert texts(job_of(SUPERPOD, *chips, sp_block=block)) == said


def test_who_says_that_it_needs_no_chips_is_excused() -> None:
    pods = (Pod(name="a", chips=16), Pod(name="b", chips=0, excused=True))

    assert problems(Job(row=SUPERPOD, pods=pods)) == ()
    assert problems(Job(row=A3, pods=pods)) == ()


@pytest.mark.seed("004-13")
def test_missing_and_ending_pods_are_named() -> None:
    pods = (
        Pod(name="a", chips=8),
        Pod(name="b", chips=8, terminating=True),
    )

    assert problems(Job(row=ATLAS, pods=pods, min_available=4)) == (
        Problem(fault=Fault.PODS_TERMINATING, text="still ending: b"),
        Problem(fault=Fault.PODS_MISSING, text="2 of 4 pods do not exist yet"),
    )


def test_counts_that_contradict_each_other_are_named() -> None:
    said = problems(job_of(ATLAS, 8, 8, min_available=3, replicas=1, total_chips=24))

    assert said == (
        Problem(fault=Fault.PODS_MISSING, text="1 of 3 pods do not exist yet"),
        Problem(
            fault=Fault.COUNTS_CONTRADICT,
            text="3 pods must run at once, but it has 1",
        ),
        Problem(fault=Fault.COUNTS_CONTRADICT, text="it has 1 pods, but 2 exist"),
    )
    assert texts(job_of(ATLAS, 8, 8, total_chips=24)) == [
        "it asks for 24 chips, but its pods for 16"
    ]


@pytest.mark.seed("002-01")
def test_of_a_virtual_device_a_pod_has_one() -> None:
    row = lookup.find_virtual_row("huawei.com/Ascend910-4c")

    assert texts(job_of(row, 1)) == []
    assert texts(job_of(row, 2)) == [
        "a pod cannot have 2 chips of a static virtual device: pod-0"
    ]


def test_a_job_that_no_row_serves_is_refused() -> None:
    assert problems(job_of(None, 8)) == (
        Problem(
            fault=Fault.NO_ROW,
            text="no kind of server that we know serves such a job",
        ),
    )


@pytest.mark.parametrize(
    ("owner_kind", "of_minimum", "written", "expected"),
    [
        ("ReplicaSet", False, "", "3"),
        ("ReplicaSet", False, "0", None),
        ("StatefulSet", False, "", None),
        ("StatefulSet", True, "", "3"),
        ("", False, "", None),
        ("", True, "1", None),
    ],
)
def test_a_rank_is_written_for_pods_that_nobody_else_numbers(
    owner_kind: str, of_minimum: bool, written: str, expected: str | None
) -> None:
    answer = choose_rank_annotation(
        3, annotation=written, owner_kind=owner_kind, of_minimum=of_minimum
    )

    assert answer == expected
