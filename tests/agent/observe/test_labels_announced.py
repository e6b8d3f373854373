"""What is said on the Node of a label that contradicts the chips."""

from agent.observe.problems import Subject
from tests.agent.announcing import Announced


def test_d1_a_wrong_label_is_told_once_for_each_change_and_its_end() -> None:
    told = Announced()

    for problem in ("", "half", "half", "module", "", ""):
        told.problems.tell(Subject.LABEL, problem)

    assert told.events == [
        ("NpuLabelWrong", "half"),
        ("NpuLabelWrong", "module"),
        ("NpuLabelRight", "no label of the node contradicts the chips any more"),
    ]
