"""What was the program told: flags, environment, file, in one frozen dataclass.

`--node-name n1` = `<PREFIX>_NODE_NAME=n1` = `node-name: n1` in the YAML file that
`--config` names. Flag before environment before file before default. All that is wrong
is reported at once: what was expected, what was found, where.
"""

import dataclasses
import difflib
import enum
import textwrap
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn, Protocol, TypeVar

from service.console import unread_is_well
from service.quote import shown, shown_key
from service.setting_types import is_truth, parsed
from service.version import version

#: The file is written by hand; more than this is not a settings file.
_FILE_BYTES = 1 << 20
#: Unknown settings of a file that are told one by one.
_MOST = 20


class _Required(enum.Enum):
    REQUIRED = enum.auto()


#: As a default: there is none, the setting must be given.
REQUIRED: Final = _Required.REQUIRED


class SettingsError(Exception):
    """The program was told wrong things; `problems` has all of them."""

    def __init__(self, problems: Sequence[str]) -> None:
        """Take the problems, each a sentence.

        Args:
            problems: One or more.
        """
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class _Settings(Protocol):
    """A frozen dataclass of options, and the prefix of its environment names."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    PREFIX: ClassVar[str]


T = TypeVar("T", bound=_Settings)

_RULES = (
    "Names that end in -s are seconds. A flag counts before the environment, that",
    "before the file, that before the default. Exit code 0: stopped as told;",
    "1: failed, start it again; 2: a setting is wrong, with a line on stderr for",
    "each that is.",
)


def option(
    default: Any,
    text: str,
    *,
    env: str | None = None,
    check: Callable[[Any], str | None] | None = None,
) -> Any:
    """Declare one setting as a dataclass field.

    Args:
        default: Its value when nobody says anything; REQUIRED for none.
        text: What it does, for --help.
        env: Its environment name, when it is not `<PREFIX>_<NAME>`.
        check: Returns what was expected when the value is wrong, else None.
    """
    metadata = {"text": text, "env": env, "check": check, "default": default}
    return dataclasses.field(metadata=metadata)


def at_least(minimum: float) -> Callable[[float], str | None]:
    """Return a check for a smallest number.

    Args:
        minimum: The smallest that is right.
    """
    return lambda value: None if value >= minimum else f"{minimum:g} or more"


def one_of(*choices: str) -> Callable[[str], str | None]:
    """Return a check for a closed set of words.

    Args:
        choices: The words that are right.
    """
    return lambda value: None if value in choices else f"one of {', '.join(choices)}"


@dataclasses.dataclass(frozen=True, slots=True)
class _Said:
    """A value as somebody gave it, and where."""

    value: object
    where: str


def load(cls: type[T], argv: Sequence[str], environ: Mapping[str, str]) -> T:
    """Return the settings that flags, environment and file add up to.

    Args:
        cls: A frozen dataclass of `option` fields, with a class variable PREFIX.
        argv: The command line without the program's name.
        environ: The process's environment.

    Raises:
        SettingsError: Something is wrong; has all problems.
        SystemExit: With 0, and help or version on stdout, if that was asked for.
    """
    if "--help" in argv or "-h" in argv:
        _say(usage(cls))
    if "--version" in argv:
        _say(f"{_program(cls)} {version()}")
    problems: list[str] = []
    fields = {_key(field): field for field in dataclasses.fields(cls)}
    flags = _from_flags(fields, argv, problems)
    env = _from_environment(cls, fields, environ)
    config = flags.pop("config", None) or env.pop("config", None)
    file = _from_file(config, fields, problems)
    said = file | env | flags
    kinds = typing.get_type_hints(cls)
    values = {
        field.name: _value(field, kinds[field.name], said.get(key), problems)
        for key, field in fields.items()
    }
    if problems:
        raise SettingsError(problems)
    return cls(**values)


def usage(cls: type[T]) -> str:
    """Return the help text.

    Args:
        cls: As for `load`.
    """
    lines = [(cls.__doc__ or "").strip(), "", f"usage: {_program(cls)} [settings]", ""]
    lines += ["Settings: flag, environment, [default]", ""]
    for field in dataclasses.fields(cls):
        lines.append(f"  --{_key(field)}  {_env_name(cls, field)}  [{_default(field)}]")
        lines += _wrapped(field.metadata["text"])
    lines.append(f"  --config  {cls.PREFIX}_CONFIG  [none]")
    lines += _wrapped(
        "YAML file with any of these, without the dashes: `node-name: n1`"
    )
    lines += ["  --version", *_wrapped("print the version"), "  --help, -h"]
    lines += [*_wrapped("print this"), "", *_RULES]
    return "\n".join(lines)


def _program(cls: type[T]) -> str:
    """Return what the program is called: the first word of its settings."""
    return (cls.__doc__ or "").strip().partition(":")[0]


def _wrapped(text: str) -> list[str]:
    pad = " " * 6
    return textwrap.wrap(text, 78, initial_indent=pad, subsequent_indent=pad)


def _default(field: "dataclasses.Field[Any]") -> str:
    default = field.metadata["default"]
    if default is REQUIRED:
        return "required"
    if isinstance(default, bool):
        return str(default).lower()
    return "none" if default in (None, "") else str(default)


def _say(text: str) -> NoReturn:
    """Print what was asked for, and end well, also when nobody reads to the end."""
    with unread_is_well():
        print(text)  # noqa: T201  # this is what was asked for
    raise SystemExit(0)


def _from_flags(
    fields: Mapping[str, "dataclasses.Field[Any]"],
    argv: Sequence[str],
    problems: list[str],
) -> dict[str, _Said]:
    """Return what the command line says: `--a b`, `--a=b`, and `--a` for a switch."""
    said: dict[str, _Said] = {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or (name not in fields and name != "config"):
            problems.append(_unknown(word, name, fields, "command line"))
            continue
        if not equals and name != "config" and fields[name].type in (bool, "bool"):
            value = rest.pop(0) if rest[:1] and is_truth(rest[0]) else "true"
        elif not equals:
            if not rest or rest[0].startswith("--"):
                problems.append(f"--{name}: expected a value, found nothing")
                continue
            value = rest.pop(0)
        said[name] = _Said(value, f"--{name}")
    return said


def _from_environment(
    cls: type[T],
    fields: Mapping[str, "dataclasses.Field[Any]"],
    environ: Mapping[str, str],
) -> dict[str, _Said]:
    names = {key: _env_name(cls, field) for key, field in fields.items()}
    names["config"] = f"{cls.PREFIX}_CONFIG"
    return {
        key: _Said(environ[name], f"environment {name}")
        for key, name in names.items()
        if name in environ
    }


def _from_file(
    config: _Said | None,
    fields: Mapping[str, "dataclasses.Field[Any]"],
    problems: list[str],
) -> dict[str, _Said]:
    if config is None:
        return {}
    path = Path(str(config.value))
    if "\0" in str(path):  # to the file system it is no path at all
        text = f"expected a readable file, found {shown(str(path))}"
        problems.append(f"{config.where}: {text}")
        return {}
    try:
        found = _mapping(path)
    except OSError as error:
        found = {}
        reason = f"{error.strerror}: {path}"
        problems.append(f"{config.where}: expected a readable file, found {reason}")
    except ValueError as error:
        found = {}
        problems.append(str(error))
    strange = [shown_key(key) for key in found if key not in fields]
    problems += [_unknown(key, key, fields, str(path)) for key in strange[:_MOST]]
    if strange[_MOST:]:
        more = f"{len(strange) - _MOST} more"
        problems.append(f"{path}: expected known settings, found {more}")
    return {k: _Said(v, f"{path}: {k}") for k, v in found.items() if k in fields}


def _mapping(path: Path) -> dict[str, object]:
    """Return what a YAML file says.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no mapping; the text says what was expected and found.
    """
    from service import yaml_files  # noqa: PLC0415  # most processes have no file

    with path.open("rb") as file:
        raw = file.read(_FILE_BYTES + 1)
    if len(raw) > _FILE_BYTES:
        raise ValueError(f"{path}: expected at most {_FILE_BYTES} bytes, found more")
    try:
        found = yaml_files.parse(raw)
    except yaml_files.YamlError as error:
        raise ValueError(f"{path}: {error}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError(  # noqa: TRY004  # the file is wrong, not a type
            f"{path}: expected `name: value` lines, found {shown(found)}"
        )
    return found


def _value(
    field: "dataclasses.Field[Any]",
    kind: object,
    said: _Said | None,
    problems: list[str],
) -> object:
    """Return a setting's value; adds to `problems` what is wrong with it."""
    if said is None:
        default = field.metadata["default"]
        if default is REQUIRED:
            problems.append(f"--{_key(field)}: expected a value, found none anywhere")
        return default
    try:
        value = parsed(kind, said.value)
        check = field.metadata["check"]
        expected = check(value) if check else None
    except ValueError as error:
        value, expected = None, str(error)
    if expected:
        problems.append(f"{said.where}: expected {expected}, found {shown(said.value)}")
    return value


def _key(field: "dataclasses.Field[Any]") -> str:
    return field.name.replace("_", "-")


def _env_name(cls: type[T], field: "dataclasses.Field[Any]") -> str:
    return field.metadata["env"] or f"{cls.PREFIX}_{field.name.upper()}"


def _unknown(word: str, name: str, fields: Mapping[str, object], where: str) -> str:
    near = difflib.get_close_matches(name, [*fields, "config"], n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{where}: expected a known setting, found {shown(word)}{hint}"
