"""What if: where would a job go now, or after nodes have gone or come?

Decides on a copy, with the core's own questions, and changes nothing: what comes out is
what `python -m scheduler_core place` says of the same snapshot. Pure, so that it can be
asked beside the decisions that matter.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from extender.queries import snapshot
from scheduler_core.node.decision import Rejection
from scheduler_core.products.lookup import ACCELERATOR_TYPE
from scheduler_core.snapshot import answers, document, questions
from scheduler_core.snapshot import job as job_document
from scheduler_core.snapshot.document import Snapshot, SnapshotNode
from scheduler_core.snapshot.job import Job
from scheduler_core.snapshot.questions import Case
from scheduler_core.snapshot.reader import Reader, SnapshotError
from scheduler_core.wire.typed import as_string
from service.quote import shown_key

VERSION = 1
#: A larger job could not be bound together either.
PODS_MOST = 10_000
#: Advice for a larger job takes many seconds, in which others wait.
ADVISED_MOST = 100
#: Names that an error repeats.
_NAMED_MOST = 5
#: Of a body; a job, and some thousand nodes to be added.
LARGEST_BYTES = 1 << 20


class AskedWronglyError(ValueError):
    """The question cannot be read; the text has all that is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked."""

    job: Job
    #: nodes that are to be gone, with all that runs on them
    drain: frozenset[str] = frozenset()
    #: nodes that are to be there besides
    add: tuple[SnapshotNode, ...] = ()


def parse(body: bytes) -> Question:
    """Read a question: {"version": 1, "job": {…}, "drain": ["node-1"], "add": [{…}]}.

    The job is as in a job file, a node as in a snapshot.

    Raises:
        AskedWronglyError: it cannot be read.
    """
    try:
        return _parse(body.decode())
    except UnicodeDecodeError:
        raise AskedWronglyError("body: expected UTF-8, found other bytes") from None
    except SnapshotError as error:
        raise AskedWronglyError(str(error)) from None


def _parse(text: str) -> Question:
    reader = Reader()
    root = reader.document(text, VERSION, required=("job",), optional=("drain", "add"))
    drain = [
        reader.read(as_string, item, f"drain[{at}]", default="")
        for at, item in enumerate(reader.items(root.get("drain", []), "drain"))
    ]
    add = reader.items(root.get("add", []), "add")
    reader.finish()
    job = job_document.parse(_document(root["job"]))
    if job.pods > PODS_MOST:
        raise AskedWronglyError(
            f"job.pods: expected at most {PODS_MOST}, found {job.pods}"
        )
    others = sorted(job.node_selector.keys() - {ACCELERATOR_TYPE})
    if others:
        raise AskedWronglyError(
            f"job.node_selector: expected {ACCELERATOR_TYPE} or nothing, because no "
            f"other labels of nodes are known here, found {_named(others)}"
        )
    nodes = json.dumps({"version": document.VERSION, "nodes": list(add)})
    return Question(job=job, drain=frozenset(drain), add=document.parse(nodes).nodes)


def _document(job: object) -> str:
    """A job as its own file would have it; the version is the question's."""
    if not isinstance(job, Mapping):
        return json.dumps(job)
    return json.dumps({"version": VERSION, **job})


def answer(question: Question, now: Snapshot) -> dict[str, object]:
    """Where the job would go, or why nowhere and what would help.

    Raises:
        AskedWronglyError: nodes are to go that are not there, or to come that are.
    """
    case = Case(snapshot=_changed(question, now), job=question.job)
    found = questions.decide(case)
    has_place = not isinstance(found, Rejection)
    is_advised = not has_place and question.job.pods <= ADVISED_MOST
    advice = questions.advise(case) if is_advised else None
    eviction = None if has_place else questions.evict(case)
    lines = answers.lines_of_answer(found, advice, eviction)
    return {
        "fits": has_place,
        **answers.of_answer(found, advice, eviction),
        "text": "".join(f"{line}\n" for line in lines),
    }


def _changed(question: Question, now: Snapshot) -> Snapshot:
    known = {node.name for node in now.nodes}
    missing = sorted(question.drain - known)
    if missing:
        raise AskedWronglyError(
            f"drain: expected nodes with NPUs, found {_named(missing)}"
        )
    left = snapshot.without_nodes(now, question.drain)
    twice = sorted({node.name for node in question.add} & (known - question.drain))
    if twice:
        raise AskedWronglyError(
            f"add: expected names that no node has, found {_named(twice)}"
        )
    return replace(left, nodes=(*left.nodes, *question.add))


def _named(names: Sequence[str]) -> str:
    """Names as an error repeats them."""
    return ", ".join(map(shown_key, names[:_NAMED_MOST]))
