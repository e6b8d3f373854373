"""Settings of a program from flags, environment and file, as one frozen dataclass.

`--node-name n1` = `<PREFIX>_NODE_NAME=n1` = `node-name: n1` in the YAML file of
`--config`. A flag overrides the environment, which overrides the file, which overrides
the default. All errors are reported at once: expected, found, and where.
"""

import dataclasses
import difflib
import enum
import textwrap
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn, Protocol, TypeVar

from service.console import ignore_closed_stdout
from service.quote import quote_key, quote_value
from service.setting_types import is_bool_word, parse_value
from service.version import version

#: Largest settings file; people write it, so no real one is larger.
_FILE_BYTES = 1 << 20
#: Number of unknown settings of a file that are reported one by one.
_MAX_UNKNOWN = 20


class _Required(enum.Enum):
    REQUIRED = enum.auto()


#: Default of a setting that must be set.
REQUIRED: Final = _Required.REQUIRED


class SettingsError(Exception):
    """Errors in the settings of a program; `problems` has all of them."""

    def __init__(self, problems: Sequence[str]) -> None:
        """Store the problems.

        Args:
            problems: One or more sentences.
        """
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class _Settings(Protocol):
    """Frozen dataclass of options, with the prefix of its environment variables."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    PREFIX: ClassVar[str]


T = TypeVar("T", bound=_Settings)

_RULES = (
    "Names that end in -s are seconds. A flag overrides the environment, which",
    "overrides the file, which overrides the default. Exit code 0: stopped by a",
    "signal, or done; 1: failed, restart it; 2: settings are wrong, with a line on",
    "stderr for each.",
)


def option(
    default: Any,
    text: str,
    *,
    env: str | None = None,
    check: Callable[[Any], str | None] | None = None,
) -> Any:
    """Return a dataclass field that declares one setting.

    Args:
        default: Value if the setting is absent; REQUIRED for none.
        text: Effect of the setting, for `--help`.
        env: Environment variable, if its name is not `<PREFIX>_<NAME>`.
        check: Returns what was expected if the value is wrong, else None.
    """
    metadata = {"text": text, "env": env, "check": check, "default": default}
    return dataclasses.field(metadata=metadata)


def at_least(minimum: float) -> Callable[[float], str | None]:
    """Return a check that a number is at least `minimum`."""
    return lambda value: None if value >= minimum else f"{minimum:g} or more"


def one_of(*choices: str) -> Callable[[str], str | None]:
    """Return a check that a word is one of `choices`."""
    return lambda value: None if value in choices else f"one of {', '.join(choices)}"


@dataclasses.dataclass(frozen=True, slots=True)
class _RawValue:
    """Unparsed value of a setting, and its source."""

    value: object
    source: str


def load(cls: type[T], argv: Sequence[str], environ: Mapping[str, str]) -> T:
    """Return the settings of flags, environment and file.

    Args:
        cls: Frozen dataclass of `option` fields, with a class variable PREFIX.
        argv: Command line without the program's name.
        environ: Environment of the process.

    Raises:
        SettingsError: At least one setting is wrong; has all problems.
        SystemExit: With 0, after `--help` or `--version` was printed to stdout.
    """
    if "--help" in argv or "-h" in argv:
        _print_and_exit(usage(cls))
    if "--version" in argv:
        _print_and_exit(f"{_program(cls)} {version()}")
    problems: list[str] = []
    fields = {_key(field): field for field in dataclasses.fields(cls)}
    flags = _from_flags(fields, argv, problems)
    env = _from_environment(cls, fields, environ)
    config = flags.pop("config", None) or env.pop("config", None)
    file = _from_file(config, fields, problems)
    raw_values = file | env | flags
    kinds = typing.get_type_hints(cls)
    values = {
        field.name: _value(field, kinds[field.name], raw_values.get(key), problems)
        for key, field in fields.items()
    }
    if problems:
        raise SettingsError(problems)
    return cls(**values)


def usage(cls: type[T]) -> str:
    """Return the help text of the program whose settings are `cls`."""
    lines = [(cls.__doc__ or "").strip(), "", f"usage: {_program(cls)} [settings]", ""]
    lines += ["Settings: flag, environment, [default]", ""]
    for field in dataclasses.fields(cls):
        lines.append(f"  --{_key(field)}  {_env_name(cls, field)}  [{_default(field)}]")
        lines += _wrap_text(field.metadata["text"])
    lines.append(f"  --config  {cls.PREFIX}_CONFIG  [none]")
    lines += _wrap_text(
        "YAML file with any of these, without the dashes: `node-name: n1`"
    )
    lines += ["  --version", *_wrap_text("print the version"), "  --help, -h"]
    lines += [*_wrap_text("print this"), "", *_RULES]
    return "\n".join(lines)


def _program(cls: type[T]) -> str:
    """Return the program's name: the first word of its settings' docstring."""
    return (cls.__doc__ or "").strip().partition(":")[0]


def _wrap_text(text: str) -> list[str]:
    pad = " " * 6
    return textwrap.wrap(text, 78, initial_indent=pad, subsequent_indent=pad)


def _default(field: "dataclasses.Field[Any]") -> str:
    default = field.metadata["default"]
    if default is REQUIRED:
        return "required"
    if isinstance(default, bool):
        return str(default).lower()
    return "none" if default in (None, "") else str(default)


def _print_and_exit(text: str) -> NoReturn:
    """Print the text and exit with 0, also if the reader closes the pipe."""
    with ignore_closed_stdout():
        print(text)  # noqa: T201  # output of --help and --version
    raise SystemExit(0)


def _from_flags(
    fields: Mapping[str, "dataclasses.Field[Any]"],
    argv: Sequence[str],
    problems: list[str],
) -> dict[str, _RawValue]:
    """Return the flags of the command line: `--a b`, `--a=b`, `--a` for a switch."""
    raw_values: dict[str, _RawValue] = {}
    words = list(argv)
    while words:
        word = words.pop(0)
        name, equals, text = word.lstrip("-").partition("=")
        if not word.startswith("-") or (name not in fields and name != "config"):
            problems.append(_unknown(word, name, fields, "command line"))
            continue
        if not equals and name != "config" and fields[name].type in (bool, "bool"):
            text = words.pop(0) if words[:1] and is_bool_word(words[0]) else "true"
        elif not equals:
            if not words or words[0].startswith("--"):
                problems.append(f"--{name}: expected a value, found nothing")
                continue
            text = words.pop(0)
        raw_values[name] = _RawValue(text, f"--{name}")
    return raw_values


def _from_environment(
    cls: type[T],
    fields: Mapping[str, "dataclasses.Field[Any]"],
    environ: Mapping[str, str],
) -> dict[str, _RawValue]:
    names = {key: _env_name(cls, field) for key, field in fields.items()}
    names["config"] = f"{cls.PREFIX}_CONFIG"
    return {
        key: _RawValue(environ[name], f"environment {name}")
        for key, name in names.items()
        if name in environ
    }


def _from_file(
    config: _RawValue | None,
    fields: Mapping[str, "dataclasses.Field[Any]"],
    problems: list[str],
) -> dict[str, _RawValue]:
    if config is None:
        return {}
    path = Path(str(config.value))
    if "\0" in str(path):  # the file system accepts no path with NUL
        text = f"expected a readable file, found {quote_value(str(path))}"
        problems.append(f"{config.source}: {text}")
        return {}
    try:
        content = _read_mapping(path)
    except OSError as error:
        content = {}
        reason = f"{error.strerror}: {path}"
        problems.append(f"{config.source}: expected a readable file, found {reason}")
    except ValueError as error:
        content = {}
        problems.append(str(error))
    unknown = [quote_key(key) for key in content if key not in fields]
    problems += [
        _unknown(key, key, fields, str(path)) for key in unknown[:_MAX_UNKNOWN]
    ]
    if unknown[_MAX_UNKNOWN:]:
        excess = f"{len(unknown) - _MAX_UNKNOWN} more"
        problems.append(f"{path}: expected known settings, found {excess}")
    return {k: _RawValue(v, f"{path}: {k}") for k, v in content.items() if k in fields}


def _read_mapping(path: Path) -> dict[str, object]:
    """Return the mapping in a YAML file.

    Raises:
        OSError: The file cannot be read.
        ValueError: It has no mapping; the text says expected and found.
    """
    from service import yaml_files  # noqa: PLC0415  # most processes have no file

    with path.open("rb") as file:
        body = file.read(_FILE_BYTES + 1)
    if len(body) > _FILE_BYTES:
        raise ValueError(f"{path}: expected at most {_FILE_BYTES} bytes, found more")
    try:
        content = yaml_files.parse(body)
    except yaml_files.YamlError as error:
        raise ValueError(f"{path}: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ValueError(  # noqa: TRY004  # the file is wrong, not a type
            f"{path}: expected `name: value` lines, found {quote_value(content)}"
        )
    return content


def _value(
    field: "dataclasses.Field[Any]",
    kind: object,
    raw: _RawValue | None,
    problems: list[str],
) -> object:
    """Return the value of a setting; add its errors to `problems`."""
    if raw is None:
        default = field.metadata["default"]
        if default is REQUIRED:
            problems.append(f"--{_key(field)}: expected a value, found none anywhere")
        return default
    try:
        value = parse_value(kind, raw.value)
        check = field.metadata["check"]
        expected = check(value) if check else None
    except ValueError as error:
        value, expected = None, str(error)
    if expected:
        problems.append(
            f"{raw.source}: expected {expected}, found {quote_value(raw.value)}"
        )
    return value


def _key(field: "dataclasses.Field[Any]") -> str:
    return field.name.replace("_", "-")


def _env_name(cls: type[T], field: "dataclasses.Field[Any]") -> str:
    return field.metadata["env"] or f"{cls.PREFIX}_{field.name.upper()}"


def _unknown(word: str, name: str, fields: Mapping[str, object], source: str) -> str:
    matches = difflib.get_close_matches(name, [*fields, "config"], n=1)
    hint = f"; did you mean {matches[0]}?" if matches else ""
    return f"{source}: expected a known setting, found {quote_value(word)}{hint}"
