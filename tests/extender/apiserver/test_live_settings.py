"""Settings in a ConfigMap, followed while the extender runs."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from extender.apiserver import live_settings
from extender.apiserver.live_settings import (
    DynamicSettings,
    SettingsFollower,
)
from extender.cache import events
from extender.planning.topology import Rules
from kube.events import Regarding
from kube.objects import ConfigMap, Meta
from kube.reflector import Deleted, Synced, Upserted
from scheduler_core.documents.reader import DocumentError
from scheduler_core.placement.job_rules import Profile
from scheduler_core.topology.leaves import Version
from tests.support.caches import apply, cluster, free
from tests.support.watched import report

TOLD = DynamicSettings(rules=Rules(superpod_size=16))
ALL = {
    "self-maintain-available-card": "false",
    "job-rules": "per-pod",
    "super-pod-size": "24",
    "reserve-nodes": "0",
    "nslb-version": "2.0",
    "shared-tor-num": "1",
}
MEANT = DynamicSettings(
    self_maintain=False,
    rules=Rules(
        profile=Profile.PER_POD,
        superpod_size=24,
        superpod_reserve=0,
        switches=Version.TWO,
        shared_leaves=1,
    ),
)


class Site:
    """What was put into force, and what was said."""

    def __init__(self) -> None:
        self.adjusted: list[DynamicSettings] = []
        self.said: list[tuple[str, str]] = []
        self.follower = SettingsFollower(
            TOLD, adjust=self.adjusted.append, record=self._say
        )

    def _say(self, about: Regarding, reason: str, text: str) -> None:
        assert (about.kind, about.name) == ("ConfigMap", live_settings.NAME)
        self.said.append((reason, text))


def config(data: Mapping[str, str] | None) -> Upserted[ConfigMap]:
    meta = Meta(name=live_settings.NAME, namespace="kube-system", uid="u")
    return Upserted(ConfigMap(metadata=meta, data=None if data is None else dict(data)))


def test_each_key_is_read() -> None:
    assert live_settings.parse(ALL, TOLD) == MEANT


def test_what_is_not_said_is_as_the_program_was_told() -> None:
    said = {"nslb-version": "2.0"}

    rules = replace(TOLD.rules, switches=Version.TWO)
    assert live_settings.parse(said, TOLD) == replace(TOLD, rules=rules)
    assert live_settings.parse({}, TOLD) == TOLD


def test_what_mindcluster_has_and_this_program_does_not_is_passed_over() -> None:
    said = {"grace-over-time": "900", "forceEnqueue": "true", "reserve-nodes": "1"}

    assert live_settings.parse(said, TOLD).rules.superpod_reserve == 1


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        ("self-maintain-available-card", "True", "expected one of true, false"),
        ("job-rules", "", "expected one of seed, per-pod"),
        ("super-pod-size", "0", "expected a whole number from 1 to 100000"),
        ("super-pod-size", "9" * 5000, "expected a whole number from 1 to 100000"),
        ("super-pod-size", "٣", "expected a whole number from 1 to 100000"),
        ("reserve-nodes", "-1", "expected a whole number from 0 to 100000"),
        ("reserve-nodes", "16", "expected fewer than the 16 of super-pod-size"),
        ("nslb-version", "single_layer", "expected one of 1.0, 2.0"),
        ("shared-tor-num", "3", "expected one of 1, 2"),
        (
            "self-maintain",
            "true",
            "no such key, did you mean 'self-maintain-avail",
        ),
    ],
)
def test_what_cannot_be_is_refused_and_named(key: str, text: str, why: str) -> None:
    with pytest.raises(DocumentError) as error:
        live_settings.parse({key: text, "job-rules": "seed"} | {key: text}, TOLD)

    assert str(error.value).startswith(f"{key}: {why}")
    assert len(str(error.value)) < 300


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(DocumentError) as error:
        live_settings.parse({"job-rules": "x", "nslb-version": "3"}, TOLD)

    assert str(error.value) == (
        "job-rules: expected one of seed, per-pod, found 'x'\n"
        "nslb-version: expected one of 1.0, 2.0, found '3'"
    )


def test_of_much_that_is_wrong_the_first_is_said() -> None:
    site = Site()

    site.follower.follow(config({f"key-{number}": "" for number in range(5000)}))

    [(_, text)] = site.said
    assert text.startswith("key-0: no such key, ")
    assert "; and 4997 more. The program's own settings" in text


def test_an_edit_takes_effect_and_the_configmap_says_so() -> None:
    site = Site()

    site.follower.follow(config(ALL))
    site.follower.follow(config(ALL))
    site.follower.follow(Synced("1"))

    assert site.adjusted == [MEANT]
    assert site.follower.in_force == MEANT
    text = (
        "in force: self-maintain-available-card false, job-rules per-pod, "
        "super-pod-size 24, reserve-nodes 0, nslb-version 2.0, shared-tor-num 1"
    )
    assert site.said == [("AscendSettingsTaken", text)]


def test_a_wrong_edit_leaves_the_last_good_one_in_force() -> None:
    site = Site()

    site.follower.follow(config(ALL))
    site.follower.follow(config(ALL | {"shared-tor-num": "9"}))

    assert (site.follower.in_force, site.follower.is_unusable) == (MEANT, True)
    assert site.adjusted == [MEANT]
    text = (
        "shared-tor-num: expected one of 1, 2, found '9'. "
        "The settings before it stay in force: self-maintain-available-card false, "
        "job-rules per-pod, super-pod-size 24, reserve-nodes 0, nslb-version 2.0, "
        "shared-tor-num 1"
    )
    assert site.said[-1] == ("AscendSettingsUnusable", text)

    site.follower.follow(config(ALL))

    assert (site.follower.in_force, site.follower.is_unusable) == (MEANT, False)


def test_who_starts_on_a_wrong_configmap_says_what_is_in_force_instead() -> None:
    site = Site()
    text = (
        "shared-tor-num: expected one of 1, 2, found '9'. "
        "The program's own settings are in force, and not those that this ConfigMap "
        "may have had before: self-maintain-available-card true, job-rules "
        "seed, super-pod-size 16, reserve-nodes 2, nslb-version 1.0, shared-tor-num 2"
    )

    site.follower.follow(config(ALL | {"shared-tor-num": "9"}))

    assert (site.follower.in_force, site.follower.is_unusable) == (TOLD, True)
    assert site.adjusted == []
    assert site.said == [("AscendSettingsUnusable", text)]

    site.follower.follow(config(ALL))
    site.follower.follow(Deleted(config(ALL).obj))
    site.follower.follow(config(ALL | {"shared-tor-num": "9"}))

    assert site.said[-1] == ("AscendSettingsUnusable", text)


def test_what_is_in_force_is_not_cut_off_however_much_is_wrong() -> None:
    site = Site()
    wrong = {"\u00e4" * 200 + str(number): "x" * 200 for number in range(50)}

    site.follower.follow(config(wrong | dict.fromkeys(ALL, "x" * 500)))

    [(_, text)] = site.said
    assert text.endswith("shared-tor-num 2")
    assert len(text) <= 1024  # the API server takes no longer event


def test_without_the_configmap_the_programs_own_settings_hold() -> None:
    site = Site()
    gone = config(ALL).obj

    site.follower.follow(config(ALL))
    site.follower.follow(Deleted(gone))
    site.follower.follow(config(None))

    assert site.adjusted == [MEANT, TOLD]


def test_the_list_counts_from_the_moment_on_that_it_is_to_count() -> None:
    cache = cluster(report("n1", there=(0, 1)))
    assert free(cache, "n1") == tuple(range(8))

    apply(cache, events.SelfMaintainSet(self_maintain=False))
    assert free(cache, "n1") == (0, 1)

    apply(cache, events.SelfMaintainSet(self_maintain=True))
    assert free(cache, "n1") == tuple(range(8))
