"""docs/keys.md has every key of the source, and no other."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from extender.apiserver import live_settings
from extender.gang import membership
from kube.objects import Meta, Pod, PodSpec
from scheduler_core.products.table import PRODUCTS
from scheduler_core.wire import deviceinfo
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "keys.md"
SOURCES = ("agent", "daemonset", "extender", "kube", "scheduler_core")

#: Modules whose text constants at the top level are keys.
MODULES = (
    *sorted(
        str(path.relative_to(ROOT)) for path in ROOT.glob("scheduler_core/wire/*.py")
    ),
    "agent/health/fault_config.py",
    "agent/report/schedule.py",
    "extender/apiserver/live_settings.py",
    "extender/apiserver/wake.py",
    "extender/cache/decode.py",
    "extender/gang/fault_policy.py",
    "extender/gang/membership.py",
    "extender/planning/candidates.py",
    "extender/rescheduling/ends.py",
    "extender/rescheduling/mover.py",
    "extender/rescheduling/policies.py",
    "extender/volcano/podgroup_conditions.py",
    "scheduler_core/products/lookup.py",
    "scheduler_core/topology/leaves.py",
)
#: Their constants that are no keys: values, variables, prefixes, sentences.
NO_KEYS = {
    "ASCEND_VISIBLE_DEVICES",  # an environment variable
    "OutOf",  # the beginning of a reason
    "Unschedulable",  # the type of the condition, Volcano's own
    "batch.kubernetes.io",
    "jobset.sigs.k8s.io",
    "kube-system",
    "leaderworkerset.sigs.k8s.io",
    "npu-core-",  # the beginning of device ids
    "ray.io",
    "training.kubeflow.org",
    "volcano",  # the name of a scheduler
    "volcano.sh",
}
KEY = re.compile(r"[A-Za-z][\w./-]*")


def test_the_page_has_every_key_of_the_source() -> None:
    assert sorted(_keys_of_source() - _keys_of_page()) == []


def test_the_source_has_every_key_of_the_page() -> None:
    composed = _keys_of_source()
    text = "\n".join(
        path.read_text()
        for source in SOURCES
        for path in (ROOT / source).rglob("*")
        if path.suffix in {".py", ".yaml"}
    )

    unknown = [
        key
        for key in sorted(_keys_of_page())
        if key not in composed and not re.search(rf"\b{re.escape(key)}\b", text)
    ]

    assert unknown == []
    assert len(_keys_of_page()) > 80


def test_the_page_has_every_key_that_the_policies_protect() -> None:
    policies = "\n".join(
        path.read_text() for path in ROOT.glob("daemonset/components/policies/*.yaml")
    )
    listed = {
        key
        for some in re.findall(r"k in \[(.*?)\]", policies, re.DOTALL)
        for key in re.findall(r"'([^']+)'", some)
    }

    assert sorted(listed - _keys_of_page()) == []
    assert len(listed) > 20


def _keys_of_page() -> set[str]:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    cells = [
        key for row in rows for key in re.findall(r"`([^`]+)`", row.split(" | ")[0])
    ]
    return {key.removesuffix("<node>") for key in cells}


def _keys_of_source() -> set[str]:
    found = {key for module in MODULES for key in _constants(module)}
    found |= set(_of_function("agent/report/content.py", "node_marks"))
    found |= _keys_of_jobs() | live_settings.IDLE
    found |= {row.resource for row in PRODUCTS}
    found |= {key for row in PRODUCTS for key in (*row.job_labels, *row.node_labels)}
    report = DeviceInfo(update_time=0), Affinity(sequence=0), PRODUCTS[0]
    found |= deviceinfo.render(*report).keys() | deviceinfo.LABELS.keys()
    return (found | {deviceinfo.configmap_name("")}) - NO_KEYS


def _constants(module: str) -> Iterator[str]:
    """Yield the texts that a module gives a name in capitals, and keys of mappings."""
    for node in ast.parse((ROOT / module).read_text()).body:
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        is_constant = isinstance(target, ast.Name) and target.id.isupper()
        if is_constant and isinstance(value, ast.Constant):
            yield from _texts([value])
        elif (
            is_constant
            and isinstance(value, ast.Dict)
            and "READERS" in ast.unparse(target)
        ):
            yield from _texts(value.keys)


def _of_function(module: str, name: str) -> Iterator[str]:
    """Yield the texts that a function uses as keys of a mapping."""
    body = ast.parse((ROOT / module).read_text()).body
    (function,) = [
        each for each in body if isinstance(each, ast.FunctionDef) and each.name == name
    ]
    for node in ast.walk(function):
        if isinstance(node, ast.Dict):
            yield from _texts(node.keys)
        elif isinstance(node, ast.Subscript):
            yield from _texts([node.slice])


def _texts(nodes: Iterable[ast.expr | None]) -> Iterator[str]:
    for node in nodes:
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and KEY.fullmatch(text):
            yield text


class _Asked(dict[str, str]):
    """Labels with a mark of each row, that remember which keys somebody looked up."""

    def __init__(self) -> None:
        super().__init__({mark: "" for row in membership.ROWS for mark in row.marks})
        self.keys_asked: set[str] = set()

    def get(self, key: str, default: object = None) -> str:
        self.keys_asked.add(key)
        return "0" if key.endswith("completion-index") else ""


def _keys_of_jobs() -> set[str]:
    """Return the labels and annotations that mark the pods of a job."""
    labels = _Asked()
    membership.membership(Pod(metadata=Meta(labels=labels), spec=PodSpec()))
    rows = membership.ROWS
    return labels.keys_asked | {
        key for row in rows for key in (*row.size, *row.role, *row.numbers)
    }
