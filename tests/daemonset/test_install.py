"""docs/install.md names settings that exist, and takes away all that is ours."""

import dataclasses
import re

from agent.report import content
from agent.settings import Settings as AgentSettings
from extender.apiserver import wake
from extender.settings import Settings as ExtenderSettings
from scheduler_core.products import lookup
from tests.agent.reporting import ONE
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
    marks = content.node_marks(ONE)
    (selector,) = pod_templates("base")["ascend-agent"]["spec"]["nodeSelector"]

    assert removed("annotate") == {*marks.annotations, wake.ANNOTATION}
    assert removed("label") == {
        *(*marks.labels, *marks.defaults),
        *(lookup.ACCELERATOR_TYPE, selector),
    }


def removed(verb: str) -> set[str]:
    """The keys that a command of the page takes off, such as `servertype-`."""
    (command,) = re.findall(rf"^\$ kubectl {verb} nodes (.*-)$", PAGE, re.MULTILINE)
    return {word[:-1] for word in command.split() if word.endswith("-")}
