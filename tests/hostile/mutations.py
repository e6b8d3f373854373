"""Documents that nobody means well with, made from documents that are valid.

A document is taken apart into a tree, changed at a few places, and written again.
What no tree can hold (a key twice, a number without end, bytes that are no text) is
written as it stands: `Raw`.
"""

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml
from hypothesis import strategies as st

MEGABYTE = 1 << 20
#: "nesting 1,000 deep"
DEEP = 1_000
#: The longest part that is multiplied by a thousand. Unit: bytes.
_MULTIPLIED = 1_000
#: The longest leaf that is put in by chance. Unit: bytes.
_LARGE = 10_000
MANY = 10_000


class Raw(bytes):
    """Goes into a document as it stands."""

    __slots__ = ()


#: {what it is: what stands in a value's place}
LEAVES: dict[str, Any] = {
    "nothing": None,
    "true": True,
    "an empty text": "",
    "an empty list": [],
    "an empty object": Raw(b"{}"),
    "zero": 0,
    "minus one": -1,
    "a fraction": Raw(b"0.5"),
    "beyond 64 bits": Raw(b"18446744073709551617"),
    "below 64 bits": Raw(b"-9223372036854775809"),
    "400 digits": Raw(b"9" * 400),
    "5,000 digits": Raw(b"9" * 5_000),
    "5,000 digits as text": "9" * 5_000,
    "1e400": Raw(b"1e400"),
    "1e400 as text": "1e400",
    "NaN": Raw(b"NaN"),
    "minus infinity": Raw(b"-Infinity"),
    "YAML's infinity": Raw(b".inf"),
    "half a pair of surrogates": Raw(rb'"\ud800"'),
    "NUL": Raw(rb'"a\u0000b"'),
    "a NUL byte": Raw(b'"a\0b"'),
    "invalid UTF-8": Raw(b'"a\xff\xfeb"'),
    "digits of another script": "٣٤",
    "a line end": "a\nb\r\n",
    "a path upwards": "../../etc/passwd",
    "a key twice": Raw(b'{"name": 1, "name": 2}'),
    "a megabyte": "x" * MEGABYTE,
    "a megabyte of digits": "7" * MEGABYTE,
    "a megabyte of commas": "," * MEGABYTE,
    "10,000 chips": list(range(MANY)),
    "10,000 names of chips": [f"Ascend910-{chip}" for chip in range(MANY)],
    "10,000 names in a text": ",".join(f"Ascend910-{chip}" for chip in range(MANY)),
    "10,000 keys": {f"key-{number}": number for number in range(MANY)},
    "lists 1,000 deep": Raw(b"[" * DEEP + b"]" * DEEP),
    "objects 1,000 deep": Raw(b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    "lists 100,000 deep": Raw(b"[" * 100_000 + b"]" * 100_000),
    "lists 900 deep": Raw(b"[" * 900 + b"]" * 900),
    "lists 200 deep": Raw(b"[" * 200 + b"]" * 200),
    "JSON in a text, 1,000 deep": "[" * DEEP + "]" * DEEP,
    "JSON in a text, 900 deep": '{"a":' * 900 + "1" + "}" * 900,
    "half a pair of surrogates in JSON in a text": r'{"\ud800": "\ud800"}',
}

#: Only YAML has these.
YAML_LEAVES: dict[str, Any] = {
    "a billion laughs": Raw(
        b"[&a0 [x], "
        + b", ".join(
            b"&a%d [%s]" % (n, b",".join([b"*a%d" % (n - 1)] * 10))
            for n in range(1, 12)
        )
        + b"]"
    ),
    "an object that has itself": Raw(b"&me {a: *me}"),
    "a list that has itself": Raw(b"&me [*me]"),
    "an unknown alias": Raw(b"*nobody"),
    "a tag that runs programs": Raw(b"!!python/object/apply:os.system ['true']"),
    "a tag of nobody": Raw(b"!nobody x"),
    "a truth that is none": Raw(b"!!bool perhaps"),
    "a number that is none": Raw(b"!!int x"),
    "an empty number": Raw(b"!!int ''"),
    "a fraction that is none": Raw(b"!!float x"),
    "a date that is none": Raw(b"!!timestamp x"),
    "the 31st of February": Raw(b"2026-02-31"),
    "bytes that are none": Raw("!!binary ä".encode()),
    "pairs that are none": Raw(b"!!pairs [1]"),
    "an ordered map that is none": Raw(b"!!omap [1]"),
    "a set": Raw(b"!!set {a, b}"),
    "a merge of nothing": Raw(b"{<<: 1}"),
    "a list as key": Raw(b"{? [a] : b}"),
    "20,000 hexadecimal digits": Raw(b"0x" + b"f" * 20_000),
    "base 60": Raw(b"1:" * 2_000 + b"1"),
    "a date": Raw(b"2026-02-03"),
}


class Pairs(list[tuple[Any, Any]]):
    """An object as its keys and values in order, keys twice included."""


def opened(document: bytes) -> Any:
    """The tree of a document; a text that is one itself stays a text."""
    try:
        return _paired(json.loads(document))
    except ValueError:
        pass
    try:
        return _paired(yaml.safe_load(document))
    except yaml.YAMLError:
        return Raw(document)  # of another kind, with nothing inside


def _paired(value: Any) -> Any:
    if isinstance(value, dict):
        return Pairs((key, _paired(each)) for key, each in value.items())
    return [_paired(each) for each in value] if isinstance(value, list) else value


def written(value: Any) -> bytes:
    """The document of a tree; JSON, and so YAML too."""
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, Pairs):
        return b"{%s}" % b", ".join(
            b"%s: %s" % (written(key), written(each)) for key, each in value
        )
    if isinstance(value, list):
        return b"[%s]" % b", ".join(map(written, value))
    return json.dumps(value).encode()


class Site(NamedTuple):
    """A place in a tree: its container, and where in it."""

    container: list[Any]
    place: int

    @property
    def value(self) -> Any:
        """What stands there; of an object's field, its value."""
        found = self.container[self.place]
        return found[1] if isinstance(self.container, Pairs) else found

    def put(self, value: Any) -> None:
        """Have another value there."""
        if isinstance(self.container, Pairs):
            value = (self.container[self.place][0], value)
        self.container[self.place] = value


def sites(root: list[Any]) -> list[Site]:
    """Every place below a list that holds the whole document."""
    found: list[Site] = []
    todo = [root]
    while todo:
        container = todo.pop()
        for index in range(len(container)):
            site = Site(container, index)
            found.append(site)
            if isinstance(site.value, list):
                todo.append(site.value)
    return found


Edit = Callable[[Site, Any], None]


def _replace(site: Site, leaf: Any) -> None:
    site.put(leaf)


def _remove(site: Site, _leaf: Any) -> None:
    del site.container[site.place]


def _double(site: Site, _leaf: Any) -> None:
    site.container.insert(site.place, site.container[site.place])


def _multiply(site: Site, _leaf: Any) -> None:
    # within bounds: what is multiplied twice would be a million, of a megabyte each
    item = site.container[site.place]
    if len(written(site.value)) <= _MULTIPLIED:
        copies = [copy.deepcopy(item) for _ in range(1_000)]
        site.container[site.place : site.place] = copies


def _add(site: Site, leaf: Any) -> None:
    field = ("surprise", leaf) if isinstance(site.container, Pairs) else leaf
    site.container.insert(site.place, field)


def _rename(site: Site, leaf: Any) -> None:
    if isinstance(site.container, Pairs):
        key = leaf if isinstance(leaf, (str, Raw)) else "name"
        site.container[site.place] = (key, site.value)


def _wrap(site: Site, _leaf: Any) -> None:
    site.put([site.value])


def _as_text(site: Site, _leaf: Any) -> None:
    site.put(written(site.value).decode(errors="replace"))


def _inside(site: Site, leaf: Any) -> None:
    """Change a text that is a document itself, as those of ConfigMaps are."""
    value = site.value
    if isinstance(value, str) and value[:1] in {"{", "["}:
        try:
            root = [opened(value.encode(errors="replace"))]
        except (ValueError, yaml.YAMLError, RecursionError):
            return
        places = sites(root)
        places[hash(str(leaf)[:20]) % len(places) if leaf else -1].put(leaf)
        site.put(written(root[0]).decode(errors="surrogateescape"))


EDITS: tuple[Edit, ...] = (
    *(_replace, _remove, _double, _multiply, _add, _rename, _wrap, _as_text, _inside),
)


def documents(
    seeds: Sequence[bytes], leaves: Sequence[Any]
) -> st.SearchStrategy[bytes]:
    """Documents that are almost one of the seeds."""
    edit = st.tuples(
        st.integers(0, 10_000), st.sampled_from(EDITS), st.sampled_from(leaves)
    )
    return st.builds(
        _edited, st.sampled_from(seeds), st.lists(edit, min_size=1, max_size=4)
    )


def _edited(seed: bytes, edits: Sequence[tuple[int, Edit, Any]]) -> bytes:
    root = [opened(seed)]
    for where, edit, leaf in edits:
        places = sites(root)
        if places:
            # a copy: a later edit may change what this one puts there
            edit(places[where % len(places)], copy.copy(leaf))
    return written(root[0]) if root else b""


def scribbles(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Seeds with bytes lost, turned, doubled and put in, and bytes of nobody."""
    change = st.tuples(
        st.integers(0, 100_000),
        st.integers(0, 40),
        st.one_of(st.binary(max_size=8), st.sampled_from(_BYTES)),
    )
    changed = st.builds(
        _scribbled, st.sampled_from(seeds), st.lists(change, min_size=1, max_size=4)
    )
    return st.one_of(changed, changed, changed, st.binary(max_size=200))


_BYTES = (
    b"\0",
    b"\xff",
    b"\xed\xa0\x80",
    b"\n",
    b'"',
    b"{",
    b"[" * 300,
    b"&a *a",
    b"9" * 30,
)


def _scribbled(seed: bytes, changes: Sequence[tuple[int, int, bytes]]) -> bytes:
    content = seed
    for where, lost, put in changes:
        at = where % (len(content) + 1)
        content = content[:at] + put + content[at + lost :]
    return content


def mutated(seeds: Sequence[bytes], leaves: Sequence[Any]) -> st.SearchStrategy[bytes]:
    """Documents almost valid, and bytes that hardly are documents.

    Without the largest leaves: they cost most of the time, and stand `everywhere`.
    """
    leaves = [leaf for leaf in leaves if len(written(leaf)) <= _LARGE]
    return st.one_of(documents(seeds, leaves), scribbles(seeds))


def always(
    seeds: Sequence[bytes], leaves: Mapping[str, Any], *, alone: bool = True
) -> Iterator[tuple[str, bytes]]:
    """What every parser is asked each time: each leaf once in a seed, and alone."""
    yield "no byte", b""
    yield "a megabyte of NUL", bytes(MEGABYTE)
    yield "a megabyte of 0xff", b"\xff" * MEGABYTE
    for number, (what, leaf) in enumerate(leaves.items()):
        if alone:
            yield f"only {what}", written(leaf)
        seed = seeds[number % len(seeds)]
        root = [opened(seed)]
        places = sites(root)[1:] or sites(root)
        places[number * 7 % len(places)].put(leaf)
        yield f"{what} within", written(root[0])


def everywhere(seeds: Sequence[bytes], leaves: Sequence[Any]) -> Iterator[bytes]:
    """Every leaf at every place of every seed."""
    for seed in seeds:
        count = len(sites([opened(seed)]))
        for place in range(count):
            for leaf in leaves:
                root = [opened(seed)]
                sites(root)[place].put(leaf)
                yield written(root[0])
