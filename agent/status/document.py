"""What the agent knows of its node, for a person at the node: `ascend-agent status`.

One document, shown as JSON or as text. It is made when somebody asks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.claims import values
from agent.claims.values import Ledger, Owner
from agent.devices.processes import Occupant
from agent.devices.reading import Reading
from agent.health.conditions import Health
from agent.health.findings import Change
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire import annotations
from service import clock


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All that a status is made of."""

    version: str
    mode: str
    #: What the agent is waiting for; None when it is ready.
    waiting_for: str | None
    #: Why the hardware cannot be read; "" when it can.
    driver_problem: str
    ledger: Ledger
    reading: Reading
    health: Health
    #: The oldest first.
    changes: Sequence[Change]
    #: {chip that no pod has: the processes that keep it from being free}
    leftovers: Mapping[int, tuple[Occupant, ...]] = field(default_factory=dict)


def document(view: View, *beside: View) -> dict[str, Any]:
    """Return the status as JSON has it.

    Args:
        view: Of the node's first product line.
        beside: Of its others; only then chips have names beside their numbers.
    """
    views = (view, *beside)
    changes = sorted((c for each in views for c in each.changes), key=_moment)
    return {
        "node": view.ledger.node,
        "version": view.version,
        "mode": view.mode,
        "product": ", ".join(each.reading.product.key for each in views),
        "waitingFor": view.waiting_for,
        "driverProblem": view.driver_problem or None,
        "chips": [
            {"name": annotations.chip_name(chip["chip"], each.reading.product), **chip}
            if beside
            else chip
            for each in views
            for chip in _chips(each)
        ],
        "claims": [
            _claim(each.ledger, uid) for each in views for uid in _waiting(each.ledger)
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


def _moment(change: Change) -> int:
    return change.at_ms


def _chips(view: View) -> Iterator[dict[str, Any]]:
    """Yield what is known of each chip of one product line."""
    ledger = view.ledger
    releasing = set(chip_sets.ids_of(values.releasing(ledger)))
    for chip, health in sorted(view.health.chips.items()):
        yield {
            "chip": chip,
            "condition": health.condition.value,
            "owners": _owners(ledger, chip),
            "releasing": chip in releasing,
            "processes": list(view.reading.pids_of(chip)),
            "usedBy": _used_by(view, chip) if chip in releasing else [],
            "faults": _faults(view.reading, chip),
        }


def _owners(ledger: Ledger, chip: int) -> list[str]:
    """Name who has a chip, as `namespace/pod/container`."""
    return [
        _owner(ledger, hold.owner) if hold.owner else "not known yet"
        for hold in ledger.holds.values()
        if chip in (*hold.chips, *hold.reserved)
    ]


def _owner(ledger: Ledger, owner: Owner) -> str:
    gone = "" if values.is_alive(ledger, owner.uid) else " (gone)"
    return f"{owner.namespace}/{owner.pod}/{owner.container}{gone}"


def _used_by(view: View, chip: int) -> list[dict[str, Any]]:
    """Tell which processes keep a chip from being free."""
    pids = view.reading.pids_of(chip)
    found = view.leftovers.get(chip) or [Occupant(pid=pid) for pid in pids]
    return [{"pid": who.pid, "name": who.name, "user": who.user} for who in found]


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


def _waiting(ledger: Ledger) -> Iterator[str]:
    """Yield the uids of pods that are to be served yet."""
    for uid in sorted(ledger.slots):
        if values.is_alive(ledger, uid) and not values.holds_of_pod(ledger, uid):
            yield uid


def _claim(ledger: Ledger, uid: str) -> dict[str, Any]:
    pod = ledger.pods[uid]
    return {
        "pod": f"{pod.namespace}/{pod.name}",
        "chips": list(chip_sets.ids_of(ledger.slots[uid].chips)),
    }


def text(status: Mapping[str, Any]) -> str:
    """Return a status as a person reads it.

    Args:
        status: As `document` makes it.
    """
    ready = f"waiting: {status['waitingFor']}" if status["waitingFor"] else "ready"
    lines = [f"{status['node']}: {ready}"]
    lines += [f"{status['product']}, {status['mode']}, agent {status['version']}"]
    if status["driverProblem"]:
        lines += [f"the chips cannot be read: {status['driverProblem']}"]
    rows = [("CHIP", "CONDITION", "OWNER", "FAULTS")]
    rows += [_row(chip) for chip in status["chips"]]
    lines += ["", *_table(rows)]
    for claim in status["claims"]:
        chips = ", ".join(map(str, claim["chips"]))
        lines.append(f"{claim['pod']} waits for its chips: {chips}")
    if status["changes"]:
        lines += ["", "Last changes:"]
    lines += [
        f"  {each['at']}  chip {each['chip']}  {each['after']}  {each['reason']}"
        for each in status["changes"]
    ]
    return "\n".join(lines)


def _row(chip: Mapping[str, Any]) -> tuple[str, str, str, str]:
    owners = list(chip["owners"])
    if chip["releasing"]:
        owners = owners or ["no pod"]
        owners += [f"process {Occupant(**who)}" for who in chip["usedBy"]]
    faults = [
        " ".join(
            part
            for part in (fault["level"], fault["code"], "network" * fault["network"])
            if part
        )
        for fault in chip["faults"]
    ]
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
