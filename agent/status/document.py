"""Document of `ascend-agent status`, as JSON and as text.

It is computed at each request from the ledgers, driver readings and health of chips.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.claims import values
from agent.claims.values import Ledger, Owner
from agent.devices.processes import Occupant
from agent.devices.reading import Reading
from agent.health.conditions import VANISHED, Health
from agent.health.findings import Change
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire import annotations
from service import clock


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """State of one product line, as input of the status document."""

    ledger: Ledger
    reading: Reading
    health: Health
    #: The oldest first.
    changes: Sequence[Change]
    #: {chip that no pod has: the processes that keep it from being free}
    stray_processes: Mapping[int, tuple[Occupant, ...]] = field(default_factory=dict)


def document(
    *views: View,
    node: str,
    version: str,
    mode: str,
    waiting_for: str | None,
    problems: Mapping[str, str | None],
    stale_since_ms: int | None = None,
) -> dict[str, Any]:
    """Return the status document of a node as values ready for JSON.

    Args:
        views: States of the node's product lines; none before chips are served. With
            several, the entry of each chip has the chip's name beside its number.
        waiting_for: A sentence about what the agent waits for; None when it is ready.
        problems: {key of the document: sentence}, as `agent.observe.problems` tells.
        stale_since_ms: Unix milliseconds of the last reading if no chip can be read.
    """
    changes = sorted(
        (change for view in views for change in view.changes),
        key=lambda change: change.at_ms,
    )
    return {
        "node": node,
        "version": version,
        "mode": mode,
        "product": ", ".join(line.reading.product.key for line in views),
        "waitingFor": waiting_for,
        **problems,
        "staleSince": None
        if stale_since_ms is None
        else clock.rfc3339(stale_since_ms / 1000),
        "chips": [
            {"name": annotations.chip_name(chip["chip"], line.reading.product), **chip}
            if len(views) > 1
            else chip
            for line in views
            for chip in _chips(line)
        ],
        "claims": [
            _claim(line.ledger, uid)
            for line in views
            for uid in values.waiting_pods(line.ledger)
        ],
        "changes": [
            {
                "at": clock.rfc3339(change.at_ms / 1000),
                "chip": change.transition.chip,
                "before": change.transition.before.value,
                "after": change.transition.after.value,
                "reason": change.transition.reason,
            }
            for change in changes
        ],
    }


def _chips(view: View) -> Iterator[dict[str, Any]]:
    """Yield the status document's entry of each chip in `view`, by chip number."""
    ledger = view.ledger
    releasing = set(chip_sets.ids_of(values.releasing_chips(ledger)))
    for chip, health in sorted(view.health.chips.items()):
        yield {
            "chip": chip,
            "condition": health.condition.value,
            "owners": _owners(ledger, chip),
            "releasing": chip in releasing,
            "pids": list(view.reading.pids_of(chip)),
            "strayProcesses": (
                _stray_processes(view, chip) if chip in releasing else []
            ),
            "faults": _faults(view.reading, chip),
            "problem": view.reading.why_unread(chip)
            or (None if chip in view.reading.chips else VANISHED),
        }


def _owners(ledger: Ledger, chip: int) -> list[str]:
    """Return the owners of the holds on a chip, each as `namespace/pod/container`.

    A hold whose owner is unknown gives "not known yet". The suffix "(gone)" marks a pod
    that is deleted or has ended. Pods that have the chip through another device plugin
    come last.
    """
    owners = [
        _owner(ledger, hold.owner) if hold.owner else "not known yet"
        for hold in ledger.holds.values()
        if chip in (*hold.chips, *hold.reserved)
    ]
    return [*owners, *filter(None, [ledger.foreign.get(chip)])]


def _owner(ledger: Ledger, owner: Owner) -> str:
    suffix = "" if values.is_alive(ledger, owner.uid) else " (gone)"
    return f"{owner.namespace}/{owner.pod}/{owner.container}{suffix}"


def _stray_processes(view: View, chip: int) -> list[dict[str, Any]]:
    """Return pid, name and user of each process because of which a chip is releasing.

    The driver sees these processes on the chip. If it sees none there, they are the
    processes that ended pods with holds on the chip have left behind.
    """
    pids = view.reading.pids_of(chip)
    occupants = view.stray_processes.get(chip) or [Occupant(pid=pid) for pid in pids]
    return [
        {"pid": occupant.pid, "name": occupant.name, "user": occupant.user}
        for occupant in occupants
    ]


def _faults(reading: Reading, chip: int) -> list[dict[str, Any]]:
    return [
        {
            "code": fault.code,
            "level": fault.seriousness.value,
            "network": fault.network,
            "since": clock.rfc3339(fault.since_ms / 1000) if fault.since_ms else None,
        }
        for fault in reading.faults_of(chip)
    ]


def _claim(ledger: Ledger, uid: str) -> dict[str, Any]:
    pod = ledger.pods[uid]
    return {
        "pod": f"{pod.namespace}/{pod.name}",
        "chips": list(chip_sets.ids_of(ledger.slots[uid].chips)),
    }


def text(status: Mapping[str, Any]) -> str:
    """Render a status document as text for a person."""
    waiting = status["waitingFor"]
    lines = [f"{status['node']}: {f'waiting: {waiting}' if waiting else 'ready'}"]
    parts = (status["product"], status["mode"], f"agent {status['version']}")
    lines += [", ".join(filter(None, parts))]
    if status["staleSince"]:
        since, why = status["staleSince"], status["driverProblem"]
        lines += [f"no chip can be read since {since}, all is from then: {why}"]
    elif status["driverProblem"] and status["chips"]:
        lines += [f"not all chips can be read: {status['driverProblem']}"]
    keys = [key for key in status if key.endswith("Problem") and key != "driverProblem"]
    lines += [status[key] for key in keys if status[key] not in (None, waiting)]
    rows = [("CHIP", "CONDITION", "OWNER", "FAULTS")]
    rows += [_row(chip) for chip in status["chips"]]
    lines += ["", *_table(rows)]
    for claim in status["claims"]:
        chips = ", ".join(map(str, claim["chips"]))
        lines.append(f"{claim['pod']} waits for its chips: {chips}")
    if status["changes"]:
        lines += ["", "Last changes:"]
    lines += [
        f"  {change['at']}  chip {change['chip']}  {change['after']}  "
        f"{change['reason']}"
        for change in status["changes"]
    ]
    return "\n".join(lines)


def _row(chip: Mapping[str, Any]) -> tuple[str, str, str, str]:
    owners = list(chip["owners"])
    if chip["releasing"]:
        owners = owners or ["no pod"]
        owners += [
            f"process {Occupant(**process)}" for process in chip["strayProcesses"]
        ]
    faults = [
        " ".join(
            part
            for part in (fault["level"], fault["code"], "network" * fault["network"])
            if part
        )
        for fault in chip["faults"]
    ]
    faults += [chip["problem"]] if chip["problem"] else []
    return (
        chip.get("name") or str(chip["chip"]),
        chip["condition"],
        "; ".join(owners) or "-",
        "; ".join(faults) or "-",
    )


def _table(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
