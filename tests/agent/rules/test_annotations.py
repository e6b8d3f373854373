"""What was confirmed is published, and nothing else: rule 8."""

import json
from dataclasses import replace

import pytest

from agent.claims.annotations import plan_patches
from scheduler_core.wire import annotations, configuration
from scheduler_core.wire.addresses import UNKNOWN, Address, Addresses
from tests.agent.node import (
    HOST_IP,
    RESOURCE,
    NodeLedger,
    current,
    pair,
    pod,
    running,
    staged,
)


def land(now: NodeLedger, name: str) -> None:
    """The patch of one pod is acknowledged."""
    before = now.ledger.pods[f"uid-{name}"]
    after = replace(before, annotations={**before.annotations, **now.written()[name]})
    now.update(after)


def test_a_confirmed_pod_says_its_chips_its_ids_and_that_it_was_served() -> None:
    now = current(pod("train", [0, 1]))
    now.mounts(6, 7)
    unconfirmed = now.written()
    now.shows("train", main=(6, 7))

    assert unconfirmed == {}
    assert now.written() == {
        "train": {
            annotations.ASCEND_REAL: "Ascend910-0,Ascend910-1",
            annotations.KLT_DEV: "Ascend910-6,Ascend910-7",
            annotations.CONFIGURATION: configuration.render(
                pod_name="train",
                pod_uid="uid-train",
                host_ip=HOST_IP,
                chips=[0, 1],
                addresses=Addresses(),
            ),
            annotations.PREDICATE_TIME: "18446744073709551615",
        }
    }


def test_a_pod_is_confirmed_when_all_its_containers_are_found() -> None:
    now = current(pair("train", [0, 1]))
    now.mounts_singly(0, 1)

    now.shows("train", one=(0,))
    half = now.written()
    now.shows("train", one=(0,), two=(1,))

    assert half == {}
    assert set(now.written()["train"]) == {
        annotations.ASCEND_REAL,
        annotations.KLT_DEV,
        annotations.CONFIGURATION,
        annotations.PREDICATE_TIME,
    }


def test_what_an_init_container_alone_had_is_told_too() -> None:
    now = current(pod("train", [0, 1], containers=staged(2, 1)))
    now.mounts(0, 1)
    now.mounts_for("train", 0)

    assert now.written()["train"][annotations.ASCEND_REAL] == "Ascend910-0,Ascend910-1"


def swapped() -> NodeLedger:
    """A node where the pod that came second got what was meant for the first."""
    now = current(pod("first", [0, 1], 1), pod("second", [2, 3], 2))
    now.mounts_for("second", 0, 1)
    return now


def test_a_swap_begins_with_what_its_holder_really_has() -> None:
    now = swapped()

    assert {name: sorted(keys) for name, keys in now.written().items()} == {
        "second": [
            annotations.CONFIGURATION,
            annotations.ASCEND_REAL,
            annotations.KLT_DEV,
        ]
    }


def devices(now: NodeLedger, name: str) -> list[dict[str, str]]:
    """The devices that a pod's configuration names, as far as it may be set now."""
    where = Addresses(
        chips={chip: Address(ip=f"192.168.20.{chip}") for chip in range(8)}
    )
    found = {
        patch.name: patch.annotations.get(annotations.CONFIGURATION, "{}")
        for patch in plan_patches(now.ledger, host_ip=HOST_IP, addresses=where)
    }
    named: list[dict[str, str]] = json.loads(found.get(name, "{}")).get("devices", [])
    return named


@pytest.mark.parametrize(
    ("first", "then", "told"),
    [
        (("10.0.0.1", 4), ("10.0.0.9", 7), ("10.0.0.1", "4")),
        (("", 4), ("10.0.0.9", 7), ("10.0.0.9", "4")),
        (("10.0.0.1", UNKNOWN), ("", 7), ("10.0.0.1", "7")),
        (("", UNKNOWN), ("10.0.0.9", 7), ("10.0.0.9", "7")),
    ],
    ids=["both known", "no address", "no number", "neither"],
)
def test_d28_a_running_pod_is_told_of_the_card_that_it_was_given(
    first: tuple[str, int], then: tuple[str, int], told: tuple[str, str]
) -> None:
    """Another card took the id of its chip; the node's address is followed."""
    now = running(pod("train", [1]))
    found = {}
    for host_ip, (ip, number) in (("10.9.0.1", first), ("10.9.0.2", then)):
        card = Address(ip=ip, super_device_id=number)
        where = Addresses(chips={1: card})
        for patch in plan_patches(now.ledger, host_ip=host_ip, addresses=where):
            known = now.ledger.pods[patch.uid]
            merged = {**known.annotations, **patch.annotations}
            now.update(replace(known, annotations=merged))
        text = now.ledger.pods["uid-train"].annotations[annotations.CONFIGURATION]
        found = json.loads(text)

    (device,) = found["devices"]
    assert (device["device_ip"], device["super_device_id"]) == told
    assert found["host_ip"] == "10.9.0.2"


CARD = Address(ip="10.0.0.1", super_device_id=4)
OTHER_CARD = Address(ip="10.0.0.9", super_device_id=7)
#: {hand edit: annotations that it changes; None removes}
STRIPPED: dict[str, dict[str, str | None]] = {
    "configuration": {annotations.CONFIGURATION: None},
    "damaged configuration": {annotations.CONFIGURATION: '{"devices":'},
    "no device": {annotations.CONFIGURATION: '{"devices":[]}'},
    "no address": {
        annotations.CONFIGURATION: '{"devices":[{"device_id":"1","device_ip":"-1",'
        '"super_device_id":"-2"}]}'
    },
    "AscendReal": {annotations.ASCEND_REAL: None},
    "other AscendReal": {annotations.ASCEND_REAL: "Ascend910-2"},
    "both": {annotations.CONFIGURATION: None, annotations.ASCEND_REAL: None},
}


def write(now: NodeLedger, card: Address) -> dict[str, str]:
    """What the configuration says of chip 1 once all is written that is to be."""
    where = Addresses(chips={1: card})
    while patches := plan_patches(now.ledger, host_ip=HOST_IP, addresses=where):
        for patch in patches:
            known = now.ledger.pods[patch.uid]
            merged = {**known.annotations, **patch.annotations}
            now.update(replace(known, annotations=merged))
    text = now.ledger.pods["uid-train"].annotations[annotations.CONFIGURATION]
    (device,) = json.loads(text)["devices"]
    return {key: device[key] for key in ("device_ip", "super_device_id")}


def strip(now: NodeLedger, edit: str) -> None:
    known = now.ledger.pods["uid-train"]
    edited = {**known.annotations, **STRIPPED[edit]}
    left = {key: text for key, text in edited.items() if text is not None}
    now.update(replace(known, annotations=left))


@pytest.mark.parametrize("edit", STRIPPED)
def test_d28_what_a_person_strips_is_written_as_it_was(edit: str) -> None:
    now = running(pod("train", [1]))
    first = write(now, CARD)
    for _ in range(2):
        strip(now, edit)
        again = write(now, OTHER_CARD)
        assert again == first == {"device_ip": "10.0.0.1", "super_device_id": "4"}


def test_d28_what_a_pod_was_given_with_other_chips_is_not_told_of_these() -> None:
    written = {
        annotations.ASCEND_REAL: "Ascend910-2",
        annotations.CONFIGURATION: '{"devices":[{"device_id":"2",'
        '"device_ip":"10.0.0.1","super_device_id":"4"}]}',
    }
    now = running(pod("train", [1], annotations=written))

    assert write(now, OTHER_CARD)["device_ip"] == "10.0.0.9"


def test_d28_what_a_pod_was_given_is_forgotten_with_the_pod() -> None:
    now = running(pod("train", [1]))
    write(now, CARD)
    is_known = "uid-train" in now.ledger.given
    now.delete("train")

    assert (is_known, now.ledger.given) == (True, {})


@pytest.mark.seed("000-03")
def test_addresses_are_those_of_the_chips_that_were_mounted_never_of_the_claim() -> (
    None
):
    now = current(pod("first", [0, 1], 1), pod("second", [2, 3], 2))
    now.mounts(0, 1)
    claimed = devices(now, "first"), devices(now, "second")
    now.shows("second", main=(0, 1))

    assert claimed == ([], [])  # nobody knows whose they are yet
    assert devices(now, "first") == []
    assert devices(now, "second") == [
        {"device_id": "0", "device_ip": "192.168.20.0", "super_device_id": "-2"},
        {"device_id": "1", "device_ip": "192.168.20.1", "super_device_id": "-2"},
    ]


def test_addresses_are_corrected_when_the_driver_knows_others() -> None:
    now = current(pod("train", [0, 1]))
    now.mounts_for("train", 0, 1)
    land(now, "train")

    assert now.written() == {}
    assert [each["device_ip"] for each in devices(now, "train")] == [
        "192.168.20.0",
        "192.168.20.1",
    ]


def test_then_the_first_gives_up_chips_that_stand_elsewhere_by_now() -> None:
    now = swapped()
    land(now, "second")

    assert now.written() == {"first": {RESOURCE: "Ascend910-2,Ascend910-3"}}


def test_and_only_then_the_holder_gives_up_what_the_first_has_claimed() -> None:
    now = swapped()
    land(now, "second")
    land(now, "first")

    assert now.written() == {
        "second": {
            RESOURCE: "Ascend910-0,Ascend910-1",
            annotations.PREDICATE_TIME: "18446744073709551615",
        }
    }


def test_what_is_not_certain_is_not_told_as_mounted() -> None:
    now = current(pod("train", [0, 1], phase="Running"))

    now.shows("train", main=(6, 7))  # its Allocate stands in no journal

    assert now.written() == {
        "train": {
            annotations.KLT_DEV: "Ascend910-6,Ascend910-7",
            annotations.PREDICATE_TIME: str(annotations.SERVED),
        }
    }
