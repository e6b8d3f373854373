"""Bring a real cluster up, test on it, take it down.

    python -m tests.e2e run [pytest arguments]   all of it; the default
    python -m tests.e2e build                    its programs only
    python -m tests.e2e up                       up, and left there
    python -m tests.e2e down                     gone
    python -m tests.e2e bare [pytest arguments]  tests that need no node; no root
    python -m tests.e2e controllers [pytest …]   jobs of real controllers; no root
    python -m tests.e2e operators [pytest …]     those of KubeRay and Kubeflow; no root

KEEP=1 leaves the cluster after `run`; the next `run` then uses it. E2E_CACHE names
another folder for programs and images than .e2e; E2E_INSTALL=1 installs missing
Debian packages; KUBEBUILDER_ASSETS names a folder with the control plane's programs,
KUBERNETES the release of Kubernetes that is built, such as v1.37.2.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

from tests.e2e import product, programs, requirements
from tests.e2e.bringup import alone, down, up
from tests.e2e.cluster import Cluster
from tests.e2e.components import MARK
from tests.e2e.places import KEPT, REPOSITORY, chosen
from tests.e2e.stages import CannotError, say
from tests.parts.quarters import OPERATORS, QUARTERS

#: Stories mostly wait, and each worker has a world of its own.
_BESIDE = ("-n", "2", "--dist", "worksteal")


def main(arguments: Sequence[str]) -> int:
    """Do what the first argument says; the rest is pytest's."""
    command, *rest = arguments or ("run",)
    actions = {
        "run": _run,
        "build": _build,
        "up": _up,
        "down": _down,
        "bare": _bare,
        "controllers": _controllers,
        "operators": _operators,
    }
    if command not in actions:
        sys.stderr.write(__doc__ or "")
        return 2
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if command in ("bare", "controllers", "operators"):
            return actions[command](rest)  # beside any other cluster
        with alone():
            return actions[command](rest)
    except CannotError as error:
        sys.stderr.write(f"e2e: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("e2e: interrupted\n")
        return 130


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _kept() -> Cluster | None:
    # What a killed run left is not kept, however complete it looks.
    return Cluster.attach() if KEPT.exists() else None


def _build(_: Sequence[str]) -> int:
    requirements.check()
    programs.build(chosen())
    return 0


def _up(_: Sequence[str]) -> int:
    if _kept() is not None:
        raise CannotError("a cluster is up already; make e2e-down removes it")
    try:
        cluster = _ready(None)
    except BaseException:
        _down()
        raise
    _keep(cluster)
    return 0


def _run(arguments: Sequence[str]) -> int:
    kept = _kept()
    is_kept = kept is not None or os.environ.get("KEEP") == "1"
    try:
        cluster = _ready(kept)
        # Marked as the cluster's programs are, so that it goes with them in any case.
        code = _pytest(arguments, {MARK: "pytest"})
    except BaseException:
        if kept is None:
            _down()
        raise
    if is_kept:
        _keep(cluster)
    else:
        _down()
    return code


def _bare(arguments: Sequence[str]) -> int:
    programs.build_bare(chosen())
    return _pytest(arguments, {}, "tests/e2e/test_hybrid_gangs.py")


def _controllers(arguments: Sequence[str]) -> int:
    programs.build_controllers(chosen())
    stories = [name for each in QUARTERS for name in each.controllers]
    return _pytest([*_BESIDE, *arguments], {}, *stories)


def _operators(arguments: Sequence[str]) -> int:
    programs.build_operators(chosen())
    return _pytest([*_BESIDE, *arguments], {}, *OPERATORS)


def _ready(kept: Cluster | None) -> Cluster:
    """A cluster with what the checkout holds now, also if it was kept."""
    cluster = kept or up(chosen())
    cluster.heal()
    product.deploy(cluster, product.build(cluster.places))
    return cluster


def _pytest(arguments: Sequence[str], mark: Mapping[str, str], *files: str) -> int:
    """Run pytest, where no test is named on these files, or on all."""
    is_named = any(word.startswith("tests/") for word in arguments)
    where = [] if is_named else files or ["tests/e2e"]
    options = ("-q", "-o", "timeout=900")
    command = [sys.executable, "-m", "pytest", *options, *where, *arguments]
    environment = {**os.environ, **mark}
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment) as tests:  # noqa: S603  # pytest
        try:
            return tests.wait()
        except BaseException:
            tests.terminate()
            raise


def _down(_: Sequence[str] = ()) -> int:
    # A second Ctrl-C must not leave the machine half put back.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    terminated = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        down()
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, terminated)
    return 0


def _keep(cluster: Cluster) -> None:
    KEPT.touch()
    say(f"\nThe cluster is up.\n    export KUBECONFIG={cluster.kubeconfig}")
    say("    make e2e ARGS=…   tests on it\n    make e2e-down     removes it")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
