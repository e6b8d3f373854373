"""The arguments of MindCluster's DaemonSets, and what they mean here."""

import pytest

from agent import mindcluster_flags
from agent.mindcluster_flags import Translation
from agent.settings import Settings
from service.settings import SettingsError, load

#: `ascendplugin-volcano.yaml`, as it is applied today.
VOLCANO = (
    "-volcanoType=true",
    "-presetVirtualDevice=true",
    "-logFile=/var/log/mindx-dl/devicePlugin/devicePlugin.log",
    "-logLevel=0",
    "--enable-healthz=true",
    "--healthz-address=11251",
)


def translate(*argv: str, **environ: str) -> Translation:
    return mindcluster_flags.translate(argv, environ, prefix="ASCEND_AGENT")


def problems(*argv: str) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        translate(*argv)
    return caught.value.problems


def test_our_own_words_are_left_as_they_are() -> None:
    own = ("--node-name", "n1", "--mode=standalone", "stray")

    assert translate(*own) == Translation(argv=own)


def test_the_daemonset_for_volcano_keeps_working() -> None:
    found = translate(*VOLCANO)

    assert found == Translation(
        argv=("--mode=scheduled", "--log-level=info", "--listen=:11251")
    )
    told = load(Settings, found.argv, {"NODE_NAME": "n1"})
    assert (told.mode, told.listen) == ("scheduled", ":11251")


def test_without_volcano_there_is_no_scheduler_of_ours() -> None:
    assert translate("-presetVirtualDevice=true").argv == ("--mode=standalone",)


def test_the_period_the_wait_for_chips_and_the_kubelets_pods() -> None:
    found = translate(
        "-volcanoType",
        "-listWatchPeriod",
        "10",
        "-deviceResetTimeout=300",
        "-getPodFromKubelet",
        HOST_IP="10.0.0.5",
    )

    assert found.argv == (
        "--mode=scheduled",
        "--reconcile-period-s=10",
        "--survey-wait-s=300",
        "--kubelet-url=https://10.0.0.5:10250",
    )


def test_our_own_names_count_first() -> None:
    found = translate(
        *("--mode=standalone", "-volcanoType=true", "-logLevel=3"),
        ASCEND_AGENT_LOG_LEVEL="debug",
    )

    assert found.argv == ("--mode=standalone",)


@pytest.mark.parametrize(
    ("number", "level"),
    [
        ("-1", "debug"),
        ("0", "info"),
        ("1", "warning"),
        ("2", "error"),
        ("3", "error"),
    ],
)
def test_levels_of_the_log_have_names(number: str, level: str) -> None:
    argv = translate("-volcanoType=true", f"-logLevel={number}").argv

    assert load(Settings, argv, {"NODE_NAME": "n1"}).log_level == level


def test_what_means_nothing_is_said_once_if_it_was_asked_for() -> None:
    assert translate("-hotReset=2", "-maxAge=7", "-logFile=/x").idle == (
        "-hotReset: chips are not reset",
        "-logFile: logs go to standard error",
    )


def test_what_would_give_something_else_is_refused_all_at_once() -> None:
    assert problems(
        "-presetVirtualDevice=false",
        "-shareDevCount=4",
        "-listWatchPeriod=1",
        "-volcanoType=maybe",
        "-autoStowing=false",
    ) == (
        (
            "-presetVirtualDevice: expected 'true' (virtual devices are not made on "
            "demand), found 'false'"
        ),
        (
            "-shareDevCount: expected '1' (a chip is not shared by several devices), "
            "found '4'"
        ),
        "-listWatchPeriod: expected a whole number from 3 to 1800, found '1'",
        "-volcanoType: expected true or false, found 'maybe'",
        (
            "-autoStowing: expected 'true' (chips return by themselves, except those "
            "that ManuallySeparateNPU names), found 'false'"
        ),
    )


def test_version_with_one_dash() -> None:
    assert translate("-version").argv == ("--version",)


@pytest.mark.parametrize("name", sorted(mindcluster_flags._FLAGS))
def test_every_flag_takes_its_own_default(name: str) -> None:
    default = mindcluster_flags._FLAGS[name].default

    assert translate(f"-{name}={default}").idle == ()
