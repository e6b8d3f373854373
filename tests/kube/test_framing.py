import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.errors import MalformedError
from kube.framing import LineSplitter


@pytest.mark.property
@given(
    lines=st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b"."))),
    cuts=st.lists(st.integers(0, 400)),
)
def test_however_a_stream_is_cut_the_lines_are_the_same(
    lines: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(each + b"\n" for each in lines)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    splitter = LineSplitter()

    found = [
        each
        for start, end in itertools.pairwise(edges)
        for each in splitter.feed(stream[start:end])
    ]

    assert found == [each for each in lines if each.strip()]


def test_a_line_without_an_end_is_kept_back() -> None:
    splitter = LineSplitter()

    assert splitter.feed(b"abc") == []
    assert splitter.feed(b"def\ngh") == [b"abcdef"]


def test_a_line_has_a_longest() -> None:
    splitter = LineSplitter(longest_bytes=5)

    assert splitter.feed(b"12345\n123") == [b"12345"]
    with pytest.raises(MalformedError, match="a line of more than 5 bytes"):
        splitter.feed(b"456")
