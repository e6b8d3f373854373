"""What is said on the Node of a ConfigMap that the API server does not take."""

from agent.observe.problems import Subject
from tests.agent.announcing import Announced


def test_d17_a_refusal_is_told_once_for_each_change_and_its_end() -> None:
    told = Announced()

    for problem in ("", "no right", "no right", "too long", "", ""):
        told.problems.tell(Subject.REPORT, problem)

    assert told.events == [
        ("NpuReportRefused", "no right"),
        ("NpuReportRefused", "too long"),
        ("NpuReportWritten", "the node's ConfigMap is written again"),
    ]
