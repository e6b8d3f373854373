"""Commands that decide on files, as `python -m scheduler_core place SNAPSHOT JOB`.

`place SNAPSHOT JOB` places a job; the exit code is 0 if it fits and 1 if it does not.
`explain SNAPSHOT JOB NODE` explains the decision about one node step by step.
`fragmentation SNAPSHOT` counts free chips in pieces too small for pods.
`templates` lists the templates by which chips are cut into parts.
`products` lists the known servers, and `validate SNAPSHOT` the errors of a file.
`place --batch` answers one case for each line of standard input (`snapshot/batch.py`);
its exit code is 0 if every line could be read.
Exit code 2 means wrong files or arguments.
"""

import argparse
import io
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from scheduler_core.documents.reader import DocumentError
from scheduler_core.node.decision import Rejection
from scheduler_core.parts import templates
from scheduler_core.parts.templates import ChipKind
from scheduler_core.placement.job_rules import Profile
from scheduler_core.products import table
from scheduler_core.snapshot import answers, batch, job, questions
from scheduler_core.snapshot import document as snapshot_document
from scheduler_core.snapshot.values import VERSION, cluster_of

T = TypeVar("T")

_FILES = {"snapshot": "nodes and pods, as JSON", "job": "what is asked, as JSON"}
#: default sizes of pods for which stranded chips are counted
_DEFAULT_STRANDED = (1, 2, 4, 8)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, print its result, and return the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # what a terminal lacks, by number
        sys.stdout.reconfigure(errors="backslashreplace")
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except _UnreadableError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _place(arguments: argparse.Namespace) -> int:
    if arguments.batch:
        return _answer_batch(Profile(arguments.profile))
    if arguments.job is None:
        arguments.parser.error("place: expected SNAPSHOT and JOB, or --batch")
    case = _load_case(arguments)
    answer = questions.decide(case)
    has_place = not isinstance(answer, Rejection)
    advice = None if has_place else questions.advise(case)
    eviction = None if has_place else questions.evict(case)
    _print_answer(
        arguments,
        answers.render_answer(answer, advice, eviction),
        answers.format_answer(answer, advice, eviction),
    )
    return 0 if has_place else 1


def _explain(arguments: argparse.Namespace) -> int:
    explanation = questions.explain(_load_case(arguments), arguments.node)
    _print_answer(
        arguments,
        answers.render_explanation(explanation),
        explanation.text.splitlines(),
    )
    return 0 if explanation.fits else 1


def _products(arguments: argparse.Namespace) -> int:
    rows = table.PRODUCTS
    _print_answer(
        arguments,
        {"products": [answers.render_product(row) for row in rows]},
        answers.format_products(rows),
    )
    return 0


def _templates(arguments: argparse.Namespace) -> int:
    chips: Sequence[ChipKind] = arguments.chip or templates.CHIPS
    _print_answer(
        arguments,
        {"chips": [answers.render_chip_kind(chip) for chip in chips]},
        answers.format_chip_kinds(chips),
    )
    return 0


def _chip_kind(key: str) -> ChipKind:
    chip = templates.by_key(key)
    if chip is None:
        keys = ", ".join(chip.key for chip in templates.CHIPS)
        raise argparse.ArgumentTypeError(f"expected one of {keys}, found {key!r}")
    return chip


def _fragmentation(arguments: argparse.Namespace) -> int:
    cluster = cluster_of(_load(arguments.snapshot, snapshot_document.parse))
    counts: Sequence[int] = arguments.stranded or _DEFAULT_STRANDED
    _print_answer(
        arguments,
        answers.render_fragmentation(cluster, counts),
        answers.format_fragmentation(cluster, counts),
    )
    return 0


def _load_case(arguments: argparse.Namespace) -> questions.Case:
    return questions.Case(
        snapshot=_load(arguments.snapshot, snapshot_document.parse),
        job=_load(arguments.job, job.parse),
    )


def _print_answer(
    arguments: argparse.Namespace, document: object, lines: Iterable[str]
) -> None:
    """Print an answer on standard output, as lines or with --json as JSON."""
    if arguments.json:
        lines = (json.dumps(document, ensure_ascii=False),)
    for line in lines:
        sys.stdout.write(f"{line}\n")


def _validate(arguments: argparse.Namespace) -> int:
    path: Path = arguments.snapshot
    snapshot = _load(path, snapshot_document.parse)
    sys.stdout.write(
        f"{path}: a snapshot of version {VERSION}: "
        f"{_count_noun(snapshot.nodes, 'node')}, {_count_noun(snapshot.pods, 'pod')}\n"
    )
    return 0


def _count_noun(items: Sequence[object], noun: str) -> str:
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


class _UnreadableError(Exception):
    """File that is absent, not text, or not of its format."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scheduler_core",
        description="Decide on files, without a cluster.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("place", help="where a job goes, and why")
    _add_files(command, snapshot="?", job="?")
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
    _add_files(command, snapshot=None, job=None)
    command.add_argument("node", help="its name")
    command.set_defaults(run=_explain)
    command = commands.add_parser(
        "validate", help="whether a snapshot can be read, and all that is wrong with it"
    )
    command.add_argument("snapshot", type=Path, help=_FILES["snapshot"])
    command.set_defaults(run=_validate)
    command = commands.add_parser("products", help="the kinds of servers that we know")
    _add_files(command)
    command.set_defaults(run=_products)
    command = commands.add_parser(
        "templates", help="the parts into which chips can be cut, and what each takes"
    )
    command.add_argument(
        "chip", nargs="*", type=_chip_kind, help="its key; without one, all chips"
    )
    _add_files(command)
    command.set_defaults(run=_templates)
    command = commands.add_parser(
        "fragmentation", help="free chips in pieces too small for what could use them"
    )
    _add_files(command, snapshot=None)
    command.add_argument(
        "--stranded",
        type=int,
        action="append",
        metavar="CHIPS",
        help="count chips that pods of so many cannot use; may be given several times",
    )
    command.set_defaults(run=_fragmentation)
    return parser


def _add_files(command: argparse.ArgumentParser, **files: str | None) -> None:
    """Add a command's files, given as {name: nargs}, and the option `--json`."""
    for name, nargs in files.items():
        command.add_argument(name, type=Path, nargs=nargs, help=_FILES[name])
    command.add_argument("--json", action="store_true", help="answer in JSON")


def _answer_batch(profile: Profile) -> int:
    code = 0
    if isinstance(sys.stdin, io.TextIOWrapper):  # a bad line must not end the others
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
    except DocumentError as error:
        lines = [f"{path}: {problem}" for problem in error.problems]
        raise _UnreadableError("\n".join(lines)) from error
    except UnicodeDecodeError as error:
        raise _UnreadableError(f"{path}: expected UTF-8 text, found {error}") from error
    except OSError as error:
        raise _UnreadableError(f"{path}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
