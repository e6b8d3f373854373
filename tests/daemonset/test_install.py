"""docs/install.md names settings that exist, and takes away all that is ours."""

import dataclasses
import re

from agent.devices.simulated import file
from agent.health.conditions import Health, ReadingTaken, step
from agent.report import content
from agent.settings import Settings as AgentSettings
from extender.apiserver import wake
from extender.settings import Settings as ExtenderSettings
from scheduler_core.wire.deviceinfo import Affinity
from tests.daemonset.rendered import ROOT, needs_kubectl, pod_templates

PAGE = (ROOT / "docs" / "install.md").read_text()
#: | program | `--setting` | when …
SETTING = re.compile(r"^\| (agent|extender|both) \| `--([a-z-]+)` \|", re.MULTILINE)


def names(settings: type[AgentSettings | ExtenderSettings]) -> set[str]:
    return {each.name.replace("_", "-") for each in dataclasses.fields(settings)}


def test_the_settings_exist() -> None:
    known = {"agent": names(AgentSettings), "extender": names(ExtenderSettings)}
    known["both"] = known["agent"] & known["extender"]
    shown = SETTING.findall(PAGE)

    assert len(shown) > 5
    assert [each for each in shown if each[1] not in known[each[0]]] == []


@needs_kubectl
def test_uninstalling_takes_every_mark_off_the_nodes() -> None:
    reading = file.parse("product: atlas-800-training\n")
    look = ReadingTaken(reading=reading, in_use=frozenset(), recover_s=0.0)
    health, _ = step(Health(), look, 0.0)
    drawn = content.node_report(
        reading, health, taken=(), affinity=Affinity(sequence=1)
    )
    marks = content.node_marks(drawn)
    (selector,) = pod_templates("base")["ascend-agent"]["spec"]["nodeSelector"]

    assert removed("annotate") == {*marks.annotations, wake.ANNOTATION}
    assert removed("label") == {*marks.labels, *marks.defaults, selector}


def removed(verb: str) -> set[str]:
    """The keys that a command of the page takes off, such as `servertype-`."""
    (command,) = re.findall(rf"^\$ kubectl {verb} nodes (.*-)$", PAGE, re.MULTILINE)
    return {word[:-1] for word in command.split() if word.endswith("-")}
