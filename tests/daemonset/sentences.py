"""The texts of the programs that reach people, as their source says.

A value that is filled in at run time is shown as an ellipsis.
"""

import ast
import re
from collections.abc import Iterator

import yaml

from agent.observe.problems import Subject
from tests.daemonset.rendered import ROOT, sources

#: Modules whose sentences end in events, in answers to schedulers and the kubelet, or
#: in /readyz.
SPEAKING = (
    "agent/app.py",
    "agent/product_line.py",
    "agent/wiring.py",
    "agent/devices/dcmi/chip_states.py",
    "agent/devices/dcmi/rows.py",
    "agent/devices/dcmi/driver.py",
    "agent/devices/dcmi/find_library.py",
    "agent/devices/dcmi/library.py",
    "agent/devices/dcmi/machine.py",
    "agent/devices/dcmi/reader.py",
    "agent/devices/dcmi/lifecycle.py",
    "agent/devices/dcmi/worker.py",
    "agent/devices/reading.py",
    "agent/health/conditions.py",
    "agent/monitor/driver.py",
    "agent/monitor/fault_config.py",
    "agent/monitor/stray_processes.py",
    "agent/claims/*.py",
    "agent/observe/announcer.py",
    "agent/observe/problems.py",
    "agent/pods/reconciler.py",
    "agent/plugin/*.py",
    "agent/report/content.py",
    "agent/report/reporter.py",
    "agent/report/schedule.py",
    "extender/http/endpoint.py",
    "extender/apiserver/move_requests.py",
    "extender/apiserver/writers.py",
    "extender/announcer.py",
    "extender/app.py",
    "extender/kube_scheduler/binder.py",
    "extender/kube_scheduler/sent_binds.py",
    "extender/preemption/attempt.py",
    "extender/preemption/preemptor.py",
    "extender/gang/fault_policy.py",
    "extender/gang/permit.py",
    "extender/election/lease.py",
    "extender/planning/elastic.py",
    "extender/planning/permits.py",
    "extender/planning/planner.py",
    "extender/refusals.py",
    "extender/rescheduling/assessment.py",
    "extender/rescheduling/departures.py",
    "extender/rescheduling/ends.py",
    "extender/rescheduling/fault_jobs.py",
    "extender/rescheduling/judge.py",
    "extender/rescheduling/machine.py",
    "extender/rescheduling/mover.py",
    "extender/rescheduling/rescheduler.py",
    "extender/rescheduling/stages.py",
    "extender/rescheduling/successors.py",
    "extender/rescheduling/trial.py",
    "extender/rescheduling/returns.py",
    "extender/planning/placing.py",
    "extender/planning/plan.py",
    "extender/planning/plan_input.py",
    "extender/kube_scheduler/verbs.py",
    "extender/cache/rejections.py",
    "extender/cache/unreadable.py",
    "extender/scheduling/node_filter.py",
    "extender/volcano/verbs.py",
    "extender/volcano/sessions.py",
    "scheduler_core/node/reasons.py",
    "scheduler_core/placement/*.py",
    "scheduler_core/topology/*.py",
    "scheduler_core/wire/shapes.py",
    "scheduler_core/wire/pods.py",
)
PROGRAMS = ("agent", "extender", "kube", "service")
_LOUD = {"warning", "error", "critical", "exception"}
_QUIET = {"info", "debug"}
_ELLIPSIS = "…"
#: Fewer words are a key, a name or a part that stands inside a sentence.
_WORDS = 3


def spoken() -> set[str]:
    """Every sentence of the speaking modules, apart from what they log."""
    return {
        text
        for names in SPEAKING
        for path in ROOT.glob(names)
        for text in _sentences(ast.parse(path.read_text()))
    }


def of_policies() -> set[str]:
    """What the API server says for us when it refuses something."""
    folder = ROOT / "daemonset" / "components" / "policies"
    said = [
        validation
        for path in folder.glob("*.yaml")
        for each in yaml.safe_load_all(path.read_text())
        for validation in each.get("spec", {}).get("validations", ())
    ]
    return {each.get("message") or _joined(each["messageExpression"]) for each in said}


def logged() -> set[str]:
    """What the programs log at warning and above."""
    rows = [subject.value for subject in Subject]
    return {row.log[0] for row in rows if row.log[0]} | {
        text
        for program in PROGRAMS
        for _, tree in sources(program)
        for call, level in _log_calls(tree)
        if level in _LOUD and call.args and (text := _text(call.args[0]))
    }


def event_reasons() -> set[str]:
    """The reasons of all events: one word in CamelCase each."""
    return {
        each.value
        for program in ("agent", "extender")
        for _, tree in sources(program)
        for each in ast.walk(tree)
        if isinstance(each, ast.Constant)
        and isinstance(each.value, str)
        and re.fullmatch(r"(Npu|Ascend)([A-Z][a-z]+){1,4}", each.value)
    }


def _joined(expression: str) -> str:
    """The text that an expression of string literals and one value comes to."""
    texts = re.findall("'([^']*)'", expression.partition("variables.")[0])
    return "".join(texts) + _ELLIPSIS


def _sentences(tree: ast.Module) -> Iterator[str]:
    said = [argument for call, _ in _log_calls(tree) for argument in call.args]
    # log lines in a table
    rows = (each for each in ast.walk(tree) if isinstance(each, ast.keyword))
    said += [row.value for row in rows if row.arg == "log"]
    skipped = {id(node) for argument in said for node in ast.walk(argument)}
    skipped |= {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for each in ast.walk(tree):
        if isinstance(each, ast.JoinedStr):
            skipped |= {id(part) for part in each.values}
        if isinstance(each, ast.FunctionDef) and each.returns is not None:
            skipped |= {id(part) for part in ast.walk(each.returns)}  # a type
        if id(each) not in skipped and len(_text(each).split()) >= _WORDS:
            yield _text(each)


def _log_calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    for each in ast.walk(tree):
        match each:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=level)) if (
                level in _LOUD | _QUIET
            ):
                yield each, level
            case _:
                pass


def _text(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return re.sub(r"\{\w+\}", _ELLIPSIS, text)
        case ast.JoinedStr(values=parts):
            # two values side by side are one gap to whoever reads them
            return re.sub(f"{_ELLIPSIS}+", _ELLIPSIS, "".join(map(_text, parts)))
        case ast.FormattedValue():
            return _ELLIPSIS
        case _:
            return ""
