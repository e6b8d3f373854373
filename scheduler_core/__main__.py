"""Decisions on files: `python -m scheduler_core place SNAPSHOT JOB`.

Exit code 0: there is a place; 1: there is none; 2: the files or arguments are wrong.
`explain SNAPSHOT JOB NODE` says step by step what one node can do, `fragmentation
SNAPSHOT` how much room lies in pieces too small, `products` what servers are known.
`validate SNAPSHOT` says whether a file can be read, and all that is wrong with it.
With `place --batch` one case a line is read from standard input
(`snapshot/batch.py`) and answered by one line; then 0 says that every line could be
read.
"""

import argparse
import io
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from scheduler_core.node.decision import Rejection
from scheduler_core.placement.job_rules import Profile
from scheduler_core.products import table
from scheduler_core.snapshot import answers, batch, job, questions
from scheduler_core.snapshot import document as snapshot_document
from scheduler_core.snapshot.reader import SnapshotError

T = TypeVar("T")

_FILES = {"snapshot": "nodes and pods, as JSON", "job": "what is asked, as JSON"}
#: sizes of pods for which stranded chips are counted when none is said
_STRANDED = (1, 2, 4, 8)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and say what came of it on standard output."""
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except _UnreadableError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _place(arguments: argparse.Namespace) -> int:
    if arguments.batch:
        return _answer_lines(Profile(arguments.profile))
    if arguments.job is None:
        arguments.parser.error("place: expected SNAPSHOT and JOB, or --batch")
    case = _case(arguments)
    answer = questions.decide(case)
    has_place = not isinstance(answer, Rejection)
    more = None if has_place else questions.advise(case)
    gone = None if has_place else questions.evict(case)
    _say(
        arguments,
        answers.of_answer(answer, more, gone),
        answers.lines_of_answer(answer, more, gone),
    )
    return 0 if has_place else 1


def _explain(arguments: argparse.Namespace) -> int:
    verdict = questions.explain(_case(arguments), arguments.node)
    _say(arguments, answers.of_verdict(verdict), verdict.text.splitlines())
    return 0 if verdict.fits else 1


def _products(arguments: argparse.Namespace) -> int:
    rows = table.PRODUCTS
    _say(
        arguments,
        {"products": [answers.of_product(row) for row in rows]},
        answers.lines_of_products(rows),
    )
    return 0


def _fragmentation(arguments: argparse.Namespace) -> int:
    cluster = snapshot_document.cluster_of(
        _load(arguments.snapshot, snapshot_document.parse)
    )
    counts: Sequence[int] = arguments.stranded or _STRANDED
    _say(
        arguments,
        answers.of_fragmentation(cluster, counts),
        answers.lines_of_fragmentation(cluster, counts),
    )
    return 0


def _case(arguments: argparse.Namespace) -> questions.Case:
    return questions.Case(
        snapshot=_load(arguments.snapshot, snapshot_document.parse),
        job=_load(arguments.job, job.parse),
    )


def _say(arguments: argparse.Namespace, document: object, lines: Iterable[str]) -> None:
    """On standard output, in the form that is asked for."""
    if arguments.json:
        lines = (json.dumps(document, ensure_ascii=False),)
    for line in lines:
        sys.stdout.write(f"{line}\n")


def _validate(arguments: argparse.Namespace) -> int:
    path: Path = arguments.snapshot
    found = _load(path, snapshot_document.parse)
    sys.stdout.write(
        f"{path}: a snapshot of version {snapshot_document.VERSION}: "
        f"{_count(found.nodes, 'node')}, {_count(found.pods, 'pod')}\n"
    )
    return 0


def _count(some: Sequence[object], what: str) -> str:
    return f"{len(some)} {what}{'' if len(some) == 1 else 's'}"


class _UnreadableError(Exception):
    """A file that is not there, not text, or not what it should be."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scheduler_core",
        description="Decide on files, without a cluster.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("place", help="where a job goes, and why")
    _takes(command, snapshot="?", job="?")
    command.add_argument(
        "--batch", action="store_true", help="answer one case a line of standard input"
    )
    command.add_argument(
        "--profile",
        choices=[profile.value for profile in Profile],
        default=Profile.SEED.value,
        help="how strict the rules over whole jobs are, for --batch",
    )
    command.set_defaults(run=_place, parser=parser)
    command = commands.add_parser(
        "explain", help="what one node can do for a job, step by step"
    )
    _takes(command, snapshot=None, job=None)
    command.add_argument("node", help="its name")
    command.set_defaults(run=_explain)
    command = commands.add_parser(
        "validate", help="whether a snapshot can be read, and all that is wrong with it"
    )
    command.add_argument("snapshot", type=Path, help=_FILES["snapshot"])
    command.set_defaults(run=_validate)
    command = commands.add_parser("products", help="the kinds of servers that we know")
    _takes(command)
    command.set_defaults(run=_products)
    command = commands.add_parser(
        "fragmentation", help="free chips in pieces too small for what could use them"
    )
    _takes(command, snapshot=None)
    command.add_argument(
        "--stranded",
        type=int,
        action="append",
        metavar="CHIPS",
        help="count chips that pods of so many cannot use; may be given several times",
    )
    command.set_defaults(run=_fragmentation)
    return parser


def _takes(command: argparse.ArgumentParser, **files: str | None) -> None:
    """The files that a command reads, each with how often; and the form it answers."""
    for name, often in files.items():
        command.add_argument(name, type=Path, nargs=often, help=_FILES[name])
    command.add_argument("--json", action="store_true", help="answer in JSON")


def _answer_lines(profile: Profile) -> int:
    code = 0
    if isinstance(sys.stdin, io.TextIOWrapper):  # one bad line ends none of the others
        sys.stdin.reconfigure(errors="surrogateescape")
    for line in sys.stdin:
        if not line.strip():
            continue
        answer = batch.answer(line, profile)
        sys.stdout.write(f"{answer}\n")
        if answer.startswith('{"error":'):
            code = 2
    return code


def _load(path: Path, parse: Callable[[str], T]) -> T:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except SnapshotError as error:
        lines = [f"{path}: {problem}" for problem in error.problems]
        raise _UnreadableError("\n".join(lines)) from error
    except UnicodeDecodeError as error:
        raise _UnreadableError(f"{path}: expected UTF-8 text, found {error}") from error
    except OSError as error:
        raise _UnreadableError(f"{path}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
