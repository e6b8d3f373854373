"""Flags of MindCluster's device plugin, told as our own.

An existing DaemonSet's arguments keep working: what means the same is translated,
what changes nothing that anybody can see is left out and said once, and what would
give containers something else than was asked for is refused, because nobody reads
warnings. Our own names count first, wherever they are given.

Source: MindCluster's device plugin, `main.go` (at 22bb3d98).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from service.settings import SettingsError

#: Our own setting, and its value.
Told = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """A command line in our own words."""

    argv: tuple[str, ...]
    #: Flags that were given and mean nothing here, with why.
    idle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flag:
    """One flag of theirs."""

    #: Its value when it is not given.
    default: str
    #: Smallest and largest number; None: not a number.
    bounds: tuple[int, int] | None = None
    #: What it is called here.
    own: Callable[[str, Mapping[str, str]], Sequence[Told]] | None = None
    #: Why no other value than the default will do.
    only: str = ""
    #: Why it means nothing.
    idle: str = ""


_LEVELS = {"-1": "debug", "0": "info", "1": "warning", "2": "error", "3": "error"}
_STDERR = "logs go to standard error"
_BOOLEAN = ("true", "false")


def _log_level(value: str, _environ: Mapping[str, str]) -> Sequence[Told]:
    return (("log-level", _LEVELS[value]),)


def _mode(value: str, _environ: Mapping[str, str]) -> Sequence[Told]:
    return (("mode", "scheduled" if value == "true" else "standalone"),)


def _period(value: str, _environ: Mapping[str, str]) -> Sequence[Told]:
    return (("reconcile-period-s", value),)


def _kubelet(value: str, environ: Mapping[str, str]) -> Sequence[Told]:
    host = environ.get("HOST_IP", "127.0.0.1")
    url = f"https://{host}:{environ.get('KUBELET_PORT', '10250')}"
    return (("kubelet-url", url),) if value == "true" else ()


_FLAGS: Mapping[str, _Flag] = {
    "volcanoType": _Flag(default="false", own=_mode),
    "presetVirtualDevice": _Flag(
        default="true", only="virtual devices are not made on demand"
    ),
    "listWatchPeriod": _Flag(default="5", bounds=(3, 1800), own=_period),
    "autoStowing": _Flag(
        default="true",
        only="chips return by themselves, except those that ManuallySeparateNPU names",
    ),
    "hotReset": _Flag(default="-1", bounds=(-1, 2), idle="chips are not reset"),
    "shareDevCount": _Flag(
        default="1", bounds=(1, 100), only="a chip is not shared by several devices"
    ),
    "softShareDevConfigDir": _Flag(
        default="", only="a chip is not shared by several devices"
    ),
    "linkdownTimeout": _Flag(
        default="30",
        bounds=(1, 30),
        idle="FaultDuration in mindx-dl-fault-config has taken its place",
    ),
    "use310PMixedInsert": _Flag(
        default="false", only="all 310P of a node are one resource"
    ),
    "fdFlag": _Flag(default="false", only="there is no mode for the edge"),
    "dealWatchHandler": _Flag(default="false", idle="watches mend themselves"),
    "checkCachedPods": _Flag(default="true", idle="watches mend themselves"),
    "enableSlowNode": _Flag(default="false", idle="slow nodes are not looked for"),
    "thirdPartyScanDelay": _Flag(default="300", idle="chips are not reset"),
    "deviceResetTimeout": _Flag(
        default="600", bounds=(10, 600), idle="chips are waited for as long as it takes"
    ),
    "useSingleDieMode": _Flag(
        default="false", only="the dies of a chip are scheduled as modules"
    ),
    "getPodFromKubelet": _Flag(default="false", own=_kubelet),
    "logLevel": _Flag(default="0", bounds=(-1, 3), own=_log_level),
    "logFile": _Flag(
        default="/var/log/mindx-dl/devicePlugin/devicePlugin.log", idle=_STDERR
    ),
    "edgeLogFile": _Flag(
        default="/var/alog/AtlasEdge_log/devicePlugin.log", idle=_STDERR
    ),
    "maxAge": _Flag(default="7", bounds=(7, 700), idle=_STDERR),
    "maxBackups": _Flag(default="30", bounds=(1, 180), idle=_STDERR),
    "enable-healthz": _Flag(default="false"),
    "healthz-address": _Flag(default="11251", bounds=(1025, 65535)),
    "tls-cert-file": _Flag(default="", only="the endpoints speak plain HTTP"),
    "tls-private-key-file": _Flag(default="", only="the endpoints speak plain HTTP"),
}


def translated(
    argv: Sequence[str], environ: Mapping[str, str], *, prefix: str
) -> Translation:
    """Return a command line in our own words.

    Args:
        argv: Without the program's name.
        environ: Of the process.
        prefix: Of our settings in the environment.

    Raises:
        SettingsError: A flag of theirs is given a value that will not do.
    """
    given, ours = _split(argv)
    if not given:
        return Translation(argv=tuple(ours))
    problems = [problem for name in given for problem in _problems(name, given[name])]
    if problems:
        raise SettingsError(problems)
    told = dict(_told(given, environ))
    known = {word.lstrip("-").partition("=")[0] for word in ours if word[:1] == "-"}
    known |= {
        name for name in told if f"{prefix}_{name.upper().replace('-', '_')}" in environ
    }
    theirs = [f"--{name}={text}" for name, text in told.items() if name not in known]
    return Translation(
        argv=(*ours, *theirs),
        idle=tuple(
            f"-{name}: {_FLAGS[name].idle}"
            for name, value in given.items()
            if _FLAGS[name].idle and value != _FLAGS[name].default
        ),
    )


def _split(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return {their flag: its value}, and the words that are not theirs."""
    given: dict[str, str] = {}
    ours: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in _FLAGS:
            # Go writes it with one dash
            ours.append("--version" if word == "-version" else word)
            continue
        if not equals:
            is_switch = _FLAGS[name].default in _BOOLEAN
            value = "true" if is_switch or not rest else rest.pop(0)
        given[name] = value.lower() if _FLAGS[name].default in _BOOLEAN else value
    return given, ours


def _problems(name: str, value: str) -> Iterator[str]:
    flag = _FLAGS[name]
    if flag.default in _BOOLEAN and value not in _BOOLEAN:
        yield f"-{name}: expected true or false, found {value!r}"
    elif flag.bounds and not _is_within(value, *flag.bounds):
        least, most = flag.bounds
        yield (
            f"-{name}: expected a whole number from {least} to {most}, found {value!r}"
        )
    elif flag.only and value != flag.default:
        yield f"-{name}: expected {flag.default!r} ({flag.only}), found {value!r}"


def _is_within(value: str, least: int, most: int) -> bool:
    digits = value.removeprefix("-")
    is_number = digits.isascii() and digits.isdecimal()
    return is_number and least <= int(value) <= most


def _told(given: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[Told]:
    """Yield what their flags say in our words.

    Who speaks their language and does not say -volcanoType has no scheduler that
    writes claims.
    """
    for name, value in {"volcanoType": "false", **given}.items():
        own = _FLAGS[name].own
        if own is not None:
            yield from own(value, environ)
    if given.get("enable-healthz") == "true":
        default = _FLAGS["healthz-address"].default
        yield "listen", f":{given.get('healthz-address', default)}"
