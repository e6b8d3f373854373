"""`ascend-sandbox fault` and `faults`: what a person types, and reads."""

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from sandbox.faults.control import SOCKET
from sandbox.faults.kinds import FAULTS, FaultKind, Parameter
from service.console import ignore_closed_stdout

_DONE, _REFUSED, _MISUSED = 0, 1, 2
#: A kubelet that is stopped takes a moment.
_ANSWER_S = 30.0
_USAGE = """\
usage: ascend-sandbox fault NAME [KEY=VALUE …] [for=10s]
       ascend-sandbox fault --end NAME
       ascend-sandbox faults              what there is, with all parameters
The sandbox is the one whose kubeconfig KUBECONFIG names.
"""


class NoSandboxError(Exception):
    """There is no running sandbox to tell; the text says what was looked for."""


def main(
    words: Sequence[str], environ: Mapping[str, str], out: TextIO, err: TextIO
) -> int:
    """Do one of the two commands; return the exit code.

    Args:
        words: `faults`, or `fault` and what follows.
        environ: For KUBECONFIG, which lies in the sandbox's directory.
        out: Where answers go.
        err: Where refusals go.
    """
    if words[1:] in (["-h"], ["--help"]):
        _say(out, _USAGE)
        return _DONE
    if words[0] == "faults" and len(words) == 1:
        _say(out, "".join(f"{line}\n" for line in listed()))
        return _DONE
    asked = request(words[1:]) if words[0] == "fault" else None
    if asked is None:
        err.write(_USAGE)
        return _MISUSED
    try:
        answer = _tell(asked, environ)
    except NoSandboxError as error:
        err.write(f"{error}\n")
        return _REFUSED
    _say(out, "".join(f"{line}\n" for line in answer.get("said", ())))
    err.writelines(f"{line}\n" for line in answer.get("refused", ()))
    return _REFUSED if "refused" in answer else _DONE


def _say(out: TextIO, text: str) -> None:
    with ignore_closed_stdout():
        out.write(text)


def listed() -> Iterator[str]:
    """Return the whole vocabulary, as a person reads it."""
    for kind in FAULTS:
        yield f"{kind.name}: {kind.does}"
        for parameter in kind.parameters:
            yield f"    {_parameter(parameter)}"
        if lasting := _lasting(kind):
            yield f"    {lasting}"


def request(words: Sequence[str]) -> dict[str, Any] | None:
    """Return what is to be asked of a sandbox; None for words that make no sense."""
    if len(words) == 2 and words[0] == "--end":
        return {"end": words[1]}
    if not words or any("=" not in word for word in words[1:]):
        return None
    return {"begin": words[0], "given": dict(w.split("=", 1) for w in words[1:])}


def _parameter(parameter: Parameter) -> str:
    usual = f" (usual: {parameter.default})" if parameter.default else ""
    needed = "" if parameter.default is not None else " (needed)"
    expected = parameter.kind.value
    return f"{parameter.name}={expected}: {parameter.does}{usual}{needed}"


def _lasting(kind: FaultKind) -> str:
    if kind.is_momentary:
        return ""
    usual = "until it is ended" if kind.usual_s is None else f"{kind.usual_s:g}s"
    return f"for=a duration such as 500ms, 10s, 1m (usual: {usual})"


def _tell(asked: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    named = environ.get("KUBECONFIG", "")
    path = Path(named).parent / SOCKET
    if not named or not path.is_socket():
        raise NoSandboxError(
            "expected the KUBECONFIG of a running sandbox, as `ascend-sandbox up` "
            f"says it; found KUBECONFIG={named or '(nothing)'}"
        )
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(_ANSWER_S)
            line.connect(str(path))
            line.sendall(json.dumps(asked).encode() + b"\n")
            answer: dict[str, Any] = json.loads(line.makefile().readline())
    except (OSError, ValueError) as error:
        raise NoSandboxError(f"the sandbox at {path} did not answer: {error}") from None
    return answer
