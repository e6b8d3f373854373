import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.index.sorted_names import SortedNames

#: names that force blocks to split: more than one block holds
MANY = 3_000


def test_many_names_come_back_in_order_however_they_went_in() -> None:
    names = SortedNames()
    for index in range(MANY):
        names.add(f"{index * 7919 % MANY:06}")

    assert list(names) == [f"{index:06}" for index in range(MANY)]
    assert (len(names), names.first(), bool(names)) == (MANY, "000000", True)


@pytest.mark.parametrize("back", [1, -1], ids=["from the first", "from the last"])
@pytest.mark.parametrize("step", [1, 7, -1], ids=["ascending", "mixed", "descending"])
def test_names_that_are_removed_leave_the_others_in_order(step: int, back: int) -> None:
    names = SortedNames()
    every = [f"{index:06}" for index in range(MANY)]
    for name in every[::step]:
        names.add(name)
    for name in set(every) - set(every[::step]):
        names.add(name)

    for name in [name for name in every[::back] if int(name) % 3]:
        names.remove(name)

    assert list(names) == every[::3]


def test_an_emptied_set_is_empty_and_can_be_filled_again() -> None:
    names = SortedNames()
    names.add("b")
    names.remove("b")

    assert (list(names), len(names), bool(names)) == ([], 0, False)

    names.add("c")
    names.add("a")

    assert list(names) == ["a", "c"]


@pytest.mark.property
@given(st.lists(st.text(max_size=3), max_size=200))
def test_toggling_names_keeps_the_set(toggles: list[str]) -> None:
    names, model = SortedNames(), set[str]()
    for name in toggles:
        if name in model:
            names.remove(name)
        else:
            names.add(name)
        model ^= {name}

    assert list(names) == sorted(model)


def test_the_first_name_may_be_one_to_avoid() -> None:
    names = SortedNames()
    before = names.first()
    for name in "cab":
        names.add(name)

    firsts = [names.first(avoid) for avoid in ((), "a", "ab", "abc")]
    assert (before, *firsts) == (None, "a", "b", "c", None)


@pytest.mark.property
@given(st.lists(st.sets(st.text(max_size=2), max_size=80), max_size=8))
def test_changes_of_many_names_at_once_are_changes_of_each(
    changes: list[set[str]],
) -> None:
    names, model = SortedNames(), set[str]()
    for change in changes:
        names.remove_all(sorted(change & model))
        names.add_all(list(change - model))
        model ^= change

    assert list(names) == sorted(model)
    assert (len(names), bool(names)) == (len(model), bool(model))


@pytest.mark.parametrize("count", [3, MANY // 2])
def test_few_names_or_many_are_removed_and_added_at_once(count: int) -> None:
    names = SortedNames()
    every = [f"{index:06}" for index in range(MANY)]
    names.add_all(every[::-1])
    some = every[:: MANY // count]

    names.remove_all(some)
    assert list(names) == sorted({*every} - {*some})

    names.add_all(some)
    assert list(names) == every
    assert names.among(frozenset(some)) == {*some}
