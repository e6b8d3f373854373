"""docs/troubleshooting.md has every message that a person can meet."""

import re

from scheduler_core.node import reasons
from tests.daemonset import sentences
from tests.daemonset.rendered import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
QUOTED = set(re.findall(r"`([^`\n]+)`", PAGE))
#: What the calls of the driver's library say has a page of its own.
OF_THE_DRIVER = set(
    re.findall(r"`([^`\n]+)`", (ROOT / "docs" / "driver.md").read_text())
)
#: They stand inside another sentence, which is on the page as a whole, or are names.
PARTS = {
    # Ends of the sentence that says why a pod is where it is.
    "…, as its job was planned",
    "…, freed for it",
    "…, so that all pods of the job fit",
    "…, under leaf switch …",
    "…, in SuperPoD …",
    # A caller of the library has given two pods one rank.
    "ranks: expected each once, found …",
    # How many nodes stand under leaf switches.
    "is 1 such node",
    "are … such nodes",
    "… or …",
    "… to …",
    # Chips that preemption frees, and for whom.
    "chips … are kept for it…",
    ", which … must leave",
    "… and … more",
    "… of …",
    # Node and chips of a kept place.
    "chips … of …",
    # Node and chips of a pod, behind `Found places: `.
    "… (chips …)",
    "… on …",
    # Behind `driver: ` of /readyz: where a call failed, and how a worker process ended.
    "card …, device …: ",
    "…: … (…)",
    "the driver worker",
    "has closed its socket",
    "has ended with exit code …",
    "talks nonsense: …",
    "was ended by …",
    "of another product",
    # What a chip's state machine calls what it sees.
    "clear for the hold-off",
    "network faulty for the hold-off",
    "while a pod uses it",
    # In the log, why the driver is a simulated one.
    "no … in …",
    " and … of another",
    "Atlas 200I SoC A1",
}
#: Kubernetes' own, examples and commands.
FOREIGN = re.compile(
    r"kubectl |Post |0/60 |Allocate failed |Pod was rejected|requested number of dev"
    r"|Readiness probe failed|hostPath type check|--kubelet-dir: expected"
    r"|no healthy devices present|previously allocated devices|python -m "
)
#: What the device manager of a kubelet refuses a pod with, as the sandbox's says it.
KUBELETS = (
    "no healthy devices present; ",
    "previously allocated devices are no longer healthy; ",
    "requested number of devices unavailable for ",
)
#: Written like the reason of an event, but no event of ours.
NOT_OURS = {
    "AscendAffinity",
    "DeviceInfoCfg",
    "FailedCreate",
    "FailedScheduling",
    "Forbidden",
    "UnexpectedAdmissionError",
    "UpgradeFaultReason",
}


def test_every_sentence_has_its_entry() -> None:
    assert sorted(sentences.spoken() - QUOTED - OF_THE_DRIVER - PARTS) == []
    assert sorted(sentences.of_policies() - QUOTED) == []


def test_what_the_kubelet_refuses_a_pod_with_has_its_entry() -> None:
    kubelet = (ROOT / "sandbox" / "kubelet" / "devices.py").read_text()

    assert [text for text in KUBELETS if text not in kubelet] == []
    assert [text for text in KUBELETS if f"* `{text}" not in PAGE] == []


def test_every_event_has_its_entry() -> None:
    assert sorted(sentences.event_reasons() - QUOTED) == []


def test_every_loud_log_message_has_its_entry() -> None:
    assert sorted(sentences.logged() - QUOTED) == []


def test_no_event_is_explained_that_nobody_sends() -> None:
    told = {each for each in QUOTED if re.fullmatch(r"([A-Z][a-z]+){2,}", each)}

    assert sorted(told - sentences.event_reasons() - NOT_OURS) == []


def test_no_sentence_is_explained_that_nobody_says() -> None:
    told = {each for each in QUOTED if len(each.split()) >= 3}
    known = sentences.spoken() | sentences.logged() | sentences.of_policies()

    assert sorted(each for each in told - known if not FOREIGN.match(each)) == []


def test_the_reasons_of_nodes_stand_in_their_order() -> None:
    shown = [
        PAGE.index(f"`{re.sub(r'{.+?}', '…', text)}`")
        for text in reasons._TEXTS.values()
    ]

    assert shown == sorted(shown)
