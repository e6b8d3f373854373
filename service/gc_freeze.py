"""Exclusion of long-lived objects from Python's garbage collector.

To traverse the cache of a large cluster takes tens of milliseconds, and no request is
answered meanwhile. While the first lists fill the cache, collections at Python's own
rate take processor time and find nothing. A module of its own: the extender and the
benchmarks of its latency must freeze the same way.
"""

import gc

#: Net number of new objects that starts a collection of the youngest generation. A
#: plan of thousands of pods creates tens of thousands at once, and keeps them.
YOUNG_OBJECTS = 10_000


def collect_less_often() -> None:
    """Collect young objects less often, for a program that is about to create many."""
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


def freeze_live_objects() -> None:
    """Exclude all live objects from collections, and collect young objects less often.

    Call it again when many objects of the cache have been replaced. It then first
    collects garbage among the objects that it froze before.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    collect_less_often()
