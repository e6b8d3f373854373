"""What a person may say to `ascend-sandbox`, and what it means."""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sandbox.faults import kinds
from sandbox.faults import parse as fault_sentence
from sandbox.faults.kinds import Fault
from sandbox.world import Machine, MachineError
from sandbox.world.machines import DEFAULT, machine, product_in
from scheduler_core.products.table import PRODUCTS

_NODES = 3
#: Each has an agent of its own, a program of 60 MB.
_MOST_NODES = 50

_ABOUT = "An embedded Kubernetes cluster with simulated Ascend chips."
_ABOUT_UP = """\
Starts a cluster and leaves it running until Ctrl-C: an API server for kubectl, a
kubelet and the real agent for each node, a scheduling loop and the real extender.
Nothing is installed, no root is needed, and nothing is left behind."""
_EXAMPLES = """\
examples:
  ascend-sandbox up
      three servers with eight chips each
  ascend-sandbox up --nodes 4 --product atlas-a3-16 --product atlas-a2-8
      node-1 an Atlas A3 with 16 chips, the other three Atlas A2 with 8
  ascend-sandbox up --nodes 1 --product atlas-800-training+atlas-310p:2
      a server with eight Ascend910 and two Ascend310P
  ascend-sandbox up --driver-file node-2=docs/examples/broken.yaml --port 8001
      node-2 begins with the faults in that file; kubectl finds port 8001
  ascend-sandbox up --label node-1=accelerator-type=half
      node-1 has a label that its chips contradict, as in a cluster of somebody's
  ascend-sandbox up --fault 'chip-broken node=node-1 chips=0,3' --fault api-slow
      chips that have failed, and each request to the API server waits for a second

products (key, chips, resource that its pods ask for, how many a pod may have):
"""
_LIMITS = """
A pod says by its resource and count what it wants; what it says else about its kind
of server (annotation huawei.com/schedule_policy …) counts where its job is planned
as a whole; a pod by itself is served by the row of its node.
"""


class OptionsError(Exception):
    """What was said makes no sense; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is to be done.

    Attributes:
        play: `demo` or `up`.
        machines: Of `up`: its nodes.
        port: Of `up`: where its API server listens; 0 for any port.
        faults: Of `up`: what is broken from the beginning.
    """

    play: str
    machines: tuple[Machine, ...] = ()
    port: int = 0
    faults: tuple[Fault, ...] = ()


def parse(words: Sequence[str]) -> Options:
    """Return what a command line means.

    Raises:
        OptionsError: It names nodes or products that there are not.
        SystemExit: It asks for help, or cannot be understood at all.
    """
    found = _parser().parse_args(words)
    if found.play != "up":
        return Options(play=found.play)
    try:
        machines = _machines(found.nodes, found.product, found.driver_file, found.label)
    except MachineError as error:
        raise OptionsError(str(error)) from error
    names = [machine.name for machine in machines]
    faults = tuple(_fault(text, names) for text in found.fault)
    return Options(play="up", machines=machines, port=found.port, faults=faults)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ascend-sandbox", description=_ABOUT)
    plays = parser.add_subparsers(dest="play", required=True, metavar="COMMAND")
    plays.add_parser("demo", help="the main job on an embedded cluster, step by step")
    up = plays.add_parser(
        "up",
        help="the same cluster, left running until Ctrl-C",
        description=_ABOUT_UP,
        epilog=_EXAMPLES + _products() + _LIMITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run = plays.add_parser("run", help="play a scenario, and exit by its outcome")
    run.add_argument("scenario", metavar="SCENARIO.yaml", help="docs/scenarios.md")
    plays.add_parser("faults", help="list what can be made to break")
    plays.add_parser("fault", help="break it, in the sandbox that KUBECONFIG names")
    up.add_argument(
        "--nodes",
        type=partial(_number, least=1, most=_MOST_NODES),
        default=_NODES,
        metavar="N",
        help=f"how many nodes, 1 to {_MOST_NODES}: node-1, node-2 … (default {_NODES})",
    )
    up.add_argument(
        "--product",
        action="append",
        default=[],
        metavar="KEY",
        help="what kind of server, by its key below, with KEY+KEY:COUNT so many chips "
        "of another product line as well; several: for node-1, node-2 …, the last one "
        f"for all that remain (default {DEFAULT})",
    )
    up.add_argument(
        "--driver-file",
        action="append",
        default=[],
        metavar="NODE=FILE",
        help="what the simulated driver of a node says in the beginning: its product, "
        "faults … (agent/devices/simulated/file.py); a copy, which you may edit",
    )
    up.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="NODE=KEY=VALUE",
        help="a label of a node, there before its agent runs",
    )
    up.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="'NAME KEY=VALUE …'",
        help="what is broken from the beginning, as `ascend-sandbox fault` takes it",
    )
    up.add_argument(
        "--port",
        type=partial(_number, least=0, most=65535),
        default=0,
        metavar="PORT",
        help="of the API server, on 127.0.0.1 (default: any that is free)",
    )
    return parser


def _products() -> str:
    return "".join(
        f"  {row.key:<29}{row.chip_count:>3}  {row.resource:<22}{_counts(row.counts)}\n"
        for row in PRODUCTS
    )


def _counts(counts: Sequence[int]) -> str:
    """Return counts briefly: `1 to 16` for all of them."""
    if len(counts) > 2 and counts == tuple(range(counts[0], counts[-1] + 1)):
        return f"{counts[0]} to {counts[-1]}"
    return ", ".join(map(str, counts))


def _number(text: str, least: int, most: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"expected {least} to {most}, found {text!r}")
    return int(text)


def _machines(
    count: int, keys: Sequence[str], driver_files: Sequence[str], labels: Sequence[str]
) -> tuple[Machine, ...]:
    if len(keys) > count:
        raise OptionsError(
            f"{len(keys)} times --product, for {count} node{'s' * (count > 1)}: "
            "at most one for each node"
        )
    chosen = [machine("", key) for key in keys] or [Machine(name="")]
    names = [f"node-{number}" for number in range(1, count + 1)]
    files = dict(_file(text, names) for text in driver_files)
    labels_of: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name, key, value in (_label(text, names) for text in labels):
        labels_of[name][key] = value
    machines = []
    for place, name in enumerate(names):
        said = chosen[min(place, len(chosen) - 1)]
        file = files.get(name)
        if file is not None:
            said = Machine(name="", product=product_in(file), driver_file=file)
        machines.append(replace(said, name=name, labels=labels_of[name]))
    return tuple(machines)


def _fault(text: str, names: Sequence[str]) -> Fault:
    asked = fault_sentence.request(text.split())
    if asked is None or "begin" not in asked:
        raise OptionsError(f"--fault {text}: expected 'NAME KEY=VALUE …'")
    try:
        return kinds.read(asked["begin"], asked["given"], names)
    except kinds.FaultError as error:
        flaws = "; ".join(error.problems)
        raise OptionsError(f"--fault {text}: {flaws}") from error


def _label(text: str, names: Sequence[str]) -> tuple[str, str, str]:
    name, _, label = text.partition("=")
    key, equals, value = label.partition("=")
    if not equals or not key or name not in names:
        raise OptionsError(
            f"--label {text}: expected NODE=KEY=VALUE with one of {', '.join(names)}"
        )
    return name, key, value


def _file(text: str, names: Sequence[str]) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not equals or name not in names:
        raise OptionsError(
            f"--driver-file {text}: expected NODE=FILE with one of {', '.join(names)}"
        )
    return name, Path(path)
