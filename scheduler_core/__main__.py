"""Decisions on files: `python -m scheduler_core place SNAPSHOT JOB`.

Exit code 0: there is a place; 1: there is none; 2: the files or arguments are wrong.
`validate SNAPSHOT` says whether a file can be read, and all that is wrong with it.
With `place --batch` one case a line is read from standard input (`wire/batch.py`) and
answered by one line; then 0 says that every line could be read.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from scheduler_core.jobs import Profile
from scheduler_core.placement import Placement, Rejection, place
from scheduler_core.wire import batch, snapshot, snapshot_job
from scheduler_core.wire.reader import SnapshotError

T = TypeVar("T")


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
    cluster = snapshot.cluster_of(_load(arguments.snapshot, snapshot.parse))
    job = _load(arguments.job, snapshot_job.parse)
    answer = place(job.resource, job.chips, cluster)
    sys.stdout.write(_as_json(answer) if arguments.json else _as_text(answer))
    return 0 if isinstance(answer, Placement) else 1


def _validate(arguments: argparse.Namespace) -> int:
    path: Path = arguments.snapshot
    found = _load(path, snapshot.parse)
    sys.stdout.write(
        f"{path}: a snapshot of version {snapshot.VERSION}: "
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
    command = commands.add_parser("place", help="where one pod goes, and why")
    for name, what in (
        ("snapshot", "nodes and pods, as JSON"),
        ("job", "resource and chips, as JSON"),
    ):
        command.add_argument(name, type=Path, nargs="?", help=what)
    command.add_argument(
        "--batch", action="store_true", help="answer one case a line of standard input"
    )
    command.add_argument(
        "--profile",
        choices=[profile.value for profile in Profile],
        default=Profile.SEED.value,
        help="how strict the rules over whole jobs are, for --batch",
    )
    command.add_argument("--json", action="store_true", help="answer in JSON")
    command.set_defaults(run=_place, parser=parser)
    command = commands.add_parser(
        "validate", help="whether a snapshot can be read, and all that is wrong with it"
    )
    command.add_argument("snapshot", type=Path, help="nodes and pods, as JSON")
    command.set_defaults(run=_validate)
    return parser


def _answer_lines(profile: Profile) -> int:
    code = 0
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


def _as_text(answer: Placement | Rejection) -> str:
    if isinstance(answer, Rejection):
        return f"0/{answer.nodes} nodes can serve: {answer.text}\n"
    chips = ", ".join(map(str, answer.chips))
    return f"{answer.node}: chips {chips}; {answer.reason}\n"


def _as_json(answer: Placement | Rejection) -> str:
    document: dict[str, object]
    if isinstance(answer, Rejection):
        document = {
            "reasons": [{"nodes": n, "text": text} for text, n in answer.reasons]
        }
    else:
        document = {
            "node": answer.node,
            "chips": answer.chips,
            "reason": answer.reason,
        }
    return json.dumps(document, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
