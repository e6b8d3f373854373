"""What lives as long as the process is not the garbage collector's business.

To walk through all that a large cluster has told takes tens of milliseconds each time,
in which nobody gets an answer.
"""

import gc

#: Objects that are made, and not let go of, between two looks at those: a plan of
#: thousands of pods makes tens of thousands at once that all stay.
YOUNG = 10_000


def pass_by() -> None:
    """Have the collector pass by what is there now, and look at the rest seldom.

    To be called again whenever much of what is there has become old.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
