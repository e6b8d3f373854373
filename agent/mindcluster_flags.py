"""Translate flags of MindCluster's device plugin into settings of this agent.

With it, this agent can start with the arguments of MindCluster's DaemonSet. A flag that
corresponds to a setting is translated. A flag without an effect here is left out, and
logged once if its value is not MindCluster's default. A value that this agent cannot
put into effect is an error. A setting of this agent, given as a flag or in the
environment, overrides a translated one.

Source: MindCluster's device plugin, `main.go` (at 22bb3d98).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from service.settings import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """Command line in which this agent's settings have replaced MindCluster's flags."""

    argv: tuple[str, ...]
    #: `-flag: reason` of each given flag that has no effect here.
    idle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flag:
    """One flag of MindCluster's device plugin, and what this agent does with it."""

    #: Value without the flag.
    default: str
    #: Smallest and largest number; None: not a number.
    bounds: tuple[int, int] | None = None
    #: Name of the equal setting of this agent; "" if there is none.
    setting: str = ""
    #: {value of the flag: that of the setting}; other values are the same.
    words: Mapping[str, str] = field(default_factory=dict)
    #: Reason why a value other than the default is refused; "" if it is not.
    only: str = ""
    #: Reason why the flag has no effect here; "" if it has one.
    idle: str = ""


_LEVELS = {"-1": "debug", "0": "info", "1": "warning", "2": "error", "3": "error"}
_MODES = {"true": "scheduled", "false": "standalone"}
_STDERR = "logs go to standard error"
_BOOLEAN = ("true", "false")


_FLAGS: Mapping[str, _Flag] = {
    "volcanoType": _Flag(default="false", setting="mode", words=_MODES),
    "presetVirtualDevice": _Flag(
        default="true", only="virtual devices are not made on demand"
    ),
    "listWatchPeriod": _Flag(
        default="5", bounds=(3, 1800), setting="reconcile-period-s"
    ),
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
        default="600", bounds=(10, 600), setting="survey-wait-s"
    ),
    "useSingleDieMode": _Flag(
        default="false", only="the dies of a chip are scheduled as modules"
    ),
    "getPodFromKubelet": _Flag(default="false"),
    "logLevel": _Flag(default="0", bounds=(-1, 3), setting="log-level", words=_LEVELS),
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


def translate(
    argv: Sequence[str], environ: Mapping[str, str], *, prefix: str
) -> Translation:
    """Return a command line with this agent's settings instead of MindCluster's flags.

    Args:
        argv: Command line without the program's name.
        environ: Environment of the process.
        prefix: Prefix of the environment variables that set this agent's settings.

    Raises:
        SettingsError: A flag of MindCluster has a value that this agent refuses.
    """
    flags, words = _split(argv)
    if not flags:
        return Translation(argv=tuple(words))
    problems = [problem for name in flags for problem in _problems(name, flags[name])]
    if problems:
        raise SettingsError(problems)
    settings = dict(_settings(flags, environ))
    overridden = {
        word.lstrip("-").partition("=")[0] for word in words if word[:1] == "-"
    }
    overridden |= {
        name
        for name in settings
        if f"{prefix}_{name.upper().replace('-', '_')}" in environ
    }
    translated = [
        f"--{name}={value}"
        for name, value in settings.items()
        if name not in overridden
    ]
    return Translation(
        argv=(*words, *translated),
        idle=tuple(
            f"-{name}: {_FLAGS[name].idle}"
            for name, value in flags.items()
            if _FLAGS[name].idle and value != _FLAGS[name].default
        ),
    )


def _split(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split a command line into {MindCluster flag: value} and all other arguments."""
    flags: dict[str, str] = {}
    words: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in _FLAGS:
            # as for Go programs, with one dash
            words.append("--version" if word == "-version" else word)
            continue
        if not equals:
            is_switch = _FLAGS[name].default in _BOOLEAN
            value = "true" if is_switch or not rest else rest.pop(0)
        flags[name] = value.lower() if _FLAGS[name].default in _BOOLEAN else value
    return flags, words


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


def _settings(
    flags: Mapping[str, str], environ: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield name and value of each agent setting that stands for a MindCluster flag.

    Without -volcanoType the mode is standalone: the cluster then has no scheduler that
    writes claims.
    """
    for name, value in {"volcanoType": "false", **flags}.items():
        flag = _FLAGS[name]
        if flag.setting:
            yield flag.setting, flag.words.get(value, value)
    if flags.get("getPodFromKubelet") == "true":
        host = environ.get("HOST_IP", "127.0.0.1")
        port = environ.get("KUBELET_PORT", "10250")
        yield "kubelet-url", f"https://{host}:{port}"
    if flags.get("enable-healthz") == "true":
        default = _FLAGS["healthz-address"].default
        yield "listen", f":{flags.get('healthz-address', default)}"
