import gc
import weakref

import pytest

from service import gc_freeze


class _Own:
    """What holds itself."""

    itself: "_Own"


def test_young_objects_are_collected_less_often_without_a_freeze(
    collector: tuple[int, int, int],
) -> None:
    gc_freeze.collect_less_often()

    assert gc.get_threshold() == (gc_freeze.YOUNG_OBJECTS, *collector[1:])
    assert gc.get_freeze_count() == 0


def test_what_is_there_is_passed_by_and_the_rest_is_looked_at_seldom(
    collector: tuple[int, int, int],
) -> None:
    gc_freeze.freeze_live_objects()

    assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == (gc_freeze.YOUNG_OBJECTS, *collector[1:])


@pytest.mark.usefixtures("collector")
def test_what_has_become_garbage_since_the_last_time_is_collected() -> None:
    one = _Own()
    one.itself = one
    gc_freeze.freeze_live_objects()
    known = weakref.ref(one)

    del one
    gc_freeze.freeze_live_objects()

    assert known() is None
