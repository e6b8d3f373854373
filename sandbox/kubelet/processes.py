"""Which processes are on the chips of a node, as its driver shows them?

Each running container has one process on its chips. A simulated driver reads them from
a file beside its own, at each look. The numbers are higher than any that Linux gives,
so that no process of this machine is taken for one of them.
"""

import asyncio
import json
from pathlib import Path

from sandbox.kubelet.runtime import Run
from sandbox.kubelet.switches import Switches
from scheduler_core.wire.pods import VISIBLE_DEVICES

#: Linux numbers processes below 2^22 (PID_MAX_LIMIT).
_FIRST_PID = 1 << 22


class Processes:
    """The processes of the containers of one node.

    Protects: the file shows exactly the processes there are.
    """

    def __init__(self, file: Path, switches: Switches) -> None:
        """Have no process yet, and no file.

        Args:
            file: What the driver reads.
            switches: Say which processes stay, and for how long.
        """
        self._file = file
        self._switches = switches
        #: {serial of a run: it}, whose processes have not ended
        self._runs: dict[int, Run] = {}

    def changed(self, run: Run) -> None:
        """A container has started or ended."""
        if not _chips_of(run):
            return
        if run.is_running:
            self._runs[run.serial] = run
            self._write()
        elif run.pod.name not in self._switches.outlived:
            lag_s = self._switches.process_lag_s
            if lag_s:
                asyncio.get_running_loop().call_later(lag_s, self._end, run)
            else:
                self._end(run)

    def end_left(self, pod: str) -> None:
        """End what is left of the ended containers of a pod."""
        for run in tuple(self._runs.values()):
            if run.pod.name == pod and not run.is_running:
                self._end(run)

    def _end(self, run: Run) -> None:
        if self._runs.pop(run.serial, None) is not None:
            self._write()

    def _write(self) -> None:
        uses = [
            {"chip": chip, "pid": _FIRST_PID + serial}
            for serial, run in self._runs.items()
            for chip in _chips_of(run)
        ]
        draft = self._file.with_suffix(".draft")
        # JSON is YAML
        draft.write_text(json.dumps({"processes": uses}), encoding="utf-8")
        draft.replace(self._file)


def _chips_of(run: Run) -> list[int]:
    """Return the chips that the container runtime shows to a container."""
    words = run.setup.env.get(VISIBLE_DEVICES, "").split(",")
    return sorted({int(word) for word in words if word.isdecimal()})
