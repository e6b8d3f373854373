"""What-if: where a job would go, now or after nodes are drained or added.

Nothing changes in the cluster. The answer is the one that `python -m scheduler_core
place` gives for a snapshot with these nodes drained or added. But a job of more than
`ADVISED_MOST` pods gets no advice here. The module is pure, so a thread can compute the
answer while the event loop serves schedulers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from extender.queries import snapshot
from scheduler_core.documents.parsers import listing, read_json, text, versioned
from scheduler_core.documents.reader import DocumentError, Part
from scheduler_core.node.decision import Rejection
from scheduler_core.products.lookup import ACCELERATOR_TYPE
from scheduler_core.snapshot import answers, questions
from scheduler_core.snapshot.job import Job, read_job
from scheduler_core.snapshot.parts import NODES
from scheduler_core.snapshot.questions import Case
from scheduler_core.snapshot.values import Snapshot, SnapshotNode
from service.quote import quote_key

VERSION = 1
#: Most pods of a job in a question; a larger one could not be bound together either.
PODS_MOST = 10_000
#: Most pods of a job that gets advice; more take many seconds, and others wait.
ADVISED_MOST = 100
#: Most names that an error lists.
_NAMED_MOST = 5
#: Most bytes of a request body: enough for a job and some thousand added nodes.
LARGEST_BYTES = 1 << 20


class QuestionError(ValueError):
    """Error: a what-if request is malformed, or its nodes contradict the cluster's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A what-if request: a job, and nodes to remove or add before it is placed."""

    job: Job
    #: names of nodes to remove, with the pods on them
    drain: frozenset[str] = frozenset()
    #: nodes to add
    add: tuple[SnapshotNode, ...] = ()


def parse(body: bytes) -> Question:
    """Parse the JSON body of a what-if request.

    The keys are `version` (1), `job`, `drain` (names of nodes) and `add` (nodes).
    `docs/asking.md` links the schemas of the job and of an added node.

    Raises:
        QuestionError: The body is malformed, or the job has more than `PODS_MOST` pods
            or an unknown node label in its selector.
    """
    try:
        question = read_json(body.decode(), versioned(VERSION, _read_question))
    except UnicodeDecodeError:
        raise QuestionError("body: expected UTF-8, found other bytes") from None
    except DocumentError as error:
        raise QuestionError(str(error)) from None
    job = question.job
    if job.pods > PODS_MOST:
        raise QuestionError(f"job.pods: expected at most {PODS_MOST}, found {job.pods}")
    unsupported = sorted(job.node_selector.keys() - {ACCELERATOR_TYPE})
    if unsupported:
        raise QuestionError(
            f"job.node_selector: expected {ACCELERATOR_TYPE} or nothing, because no "
            f"other labels of nodes are known here, found {_quote_names(unsupported)}"
        )
    return question


def _read_question(part: Part) -> Question:
    fields = part.fields("version", "job", "drain", "add")
    return Question(
        drain=frozenset(fields.get("drain", listing(text), ())),
        add=fields.get("add", NODES, ()),
        job=fields.need("job", _read_job),
    )


def _read_job(part: Part) -> Job:
    """Read a job as in a job file, whose version is that of the question."""
    has_version = isinstance(part.value, dict) and "version" in part.value
    return (versioned(VERSION, read_job) if has_version else read_job)(part)


def answer(question: Question, now: Snapshot) -> dict[str, object]:
    """Return the nodes and chips for a job as JSON, or why the job does not fit.

    If a job of one pod does not fit, the answer names pods whose eviction would make it
    fit, if there are any. Jobs on leaf switches or in SuperPoDs get no such names. If a
    job of up to `ADVISED_MOST` pods does not fit, the answer also says which changes of
    the cluster would help, such as a freed chip.

    Raises:
        QuestionError: A node to remove does not exist, or one to add already exists.
    """
    case = Case(snapshot=_apply_changes(question, now), job=question.job)
    outcome = questions.decide(case)
    fits = not isinstance(outcome, Rejection)
    is_advised = not fits and question.job.pods <= ADVISED_MOST
    advice = questions.advise(case) if is_advised else None
    eviction = None if fits else questions.evict(case)
    lines = answers.format_answer(outcome, advice, eviction)
    return {
        "fits": fits,
        **answers.render_answer(outcome, advice, eviction),
        "text": "".join(f"{line}\n" for line in lines),
    }


def _apply_changes(question: Question, now: Snapshot) -> Snapshot:
    current_names = {node.name for node in now.nodes}
    missing = sorted(question.drain - current_names)
    if missing:
        raise QuestionError(
            f"drain: expected nodes with NPUs, found {_quote_names(missing)}"
        )
    remaining = snapshot.without_nodes(now, question.drain)
    duplicates = sorted(
        {node.name for node in question.add} & (current_names - question.drain)
    )
    if duplicates:
        raise QuestionError(
            f"add: expected names that no node has, found {_quote_names(duplicates)}"
        )
    return replace(remaining, nodes=(*remaining.nodes, *question.add))


def _quote_names(names: Sequence[str]) -> str:
    return ", ".join(map(quote_key, names[:_NAMED_MOST]))
