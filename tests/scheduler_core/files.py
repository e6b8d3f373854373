"""A snapshot and a job in files, and what commands say of them."""

import json
from pathlib import Path

import pytest

from scheduler_core.__main__ import main
from scheduler_core.snapshot import document
from scheduler_core.snapshot.values import Snapshot


class Files:
    """The two files in a directory; each command first writes what it is given."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = directory / "cluster.json"
        self.job = directory / "job.json"
        self._capsys = capsys

    def write(self, cluster: Snapshot, **job: object) -> list[str]:
        """Write both files; return their names, the job's if there is one."""
        self.cluster.write_text(document.render(cluster), encoding="utf-8")
        asked = {"version": 1, "resource": "huawei.com/Ascend910", **job}
        self.job.write_text(json.dumps(asked), encoding="utf-8")
        return [str(self.cluster), str(self.job)] if job else [str(self.cluster)]

    def run(self, *words: object) -> tuple[int, str, str]:
        """Run a command; return exit code, output and errors."""
        code = main([str(word) for word in words])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def say(
        self, command: str, cluster: Snapshot, *more: str, **job: object
    ) -> tuple[int, str]:
        """Run a command on files with this content; return exit code and output."""
        return self.run(command, *self.write(cluster, **job), *more)[:2]
